/* Tables of plain cells. Rows with a target contain a link, so that the keyboard reaches them. Numbers and their headings
   are aligned to the right. */

function table(headings, rows, attributes = {}) {
  const cells = rows.map((row) => row.map(cell));
  const overFigures = (column) => cells.length > 0 && cells.every((row) => row[column]?.classList.contains("figure"));
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      attributes,
      h("thead", {}, h("tr", {}, headings.map((heading, column) => h("th", { scope: "col", class: overFigures(column) && "figure" }, heading)))),
      h("tbody", {}, cells.map((row) => h("tr", {}, row))),
    ),
  );
}

function cell(value) {
  if (typeof value === "number") return h("td", { class: "figure" }, number(value));
  if (value instanceof Node && value.nodeName === "TD") return value;
  return h("td", { class: isText(value) && "said" }, value);
}

/* Whether a cell is free text, or a link with free text: such a column keeps a minimum width. */
function isText(value) {
  const inner = value instanceof Element && value.localName === "a" ? value.firstElementChild : value;
  return inner instanceof Element && inner.localName === "bdi";
}

function figureCell(text, attributes = {}) {
  return h("td", { class: "figure", ...attributes }, text);
}

function link(target, ...children) {
  return h("a", { href: target }, ...children);
}

function stepLink(data, step) {
  return link(data.stepLink(step), `step ${data.steps.step[step]}`);
}

/* The first rows, and a button for more. */
function longTable(headings, rows, makeRow, attributes = {}, most = 100) {
  const holder = h("div", {});
  const show = (count) => {
    const rest = rows.length - count;
    holder.replaceChildren(
      table(headings, rows.slice(0, count).map(makeRow), attributes),
      rest > 0 ? h("button", { type: "button", click: () => show(count + most) }, `show more (${rest.toLocaleString("en")} left)`) : "",
    );
  };
  show(most);
  return holder;
}

/* Rows by the page, for tables that may have thousands; one page is in the document at a time. */
function pagedTable(headings, rows, makeRow, attributes = {}, size = 25) {
  const holder = h("div", { class: "paged" });
  const last = Math.max(Math.ceil(rows.length / size) - 1, 0);
  const whole = (count) => count.toLocaleString("en");
  const button = (label, page, from) => h("button", { type: "button", disabled: page < 0 || page > last || page === from, click: () => show(page, label) }, label);
  const show = (page, focused) => {
    const [first, end] = [page * size, Math.min((page + 1) * size, rows.length)];
    const pager = h("nav", { class: "pager", "aria-label": "pages of the table" },
      button("first", 0, page), button("previous", page - 1, page),
      h("span", { role: "status" }, rows.length ? `${whole(first + 1)}–${whole(end)} of ${whole(rows.length)}` : "none"),
      button("next", page + 1, page), button("last", last, page));
    holder.replaceChildren(table(headings, rows.slice(first, end).map(makeRow), attributes), last ? pager : "");
    if (focused) [...pager.querySelectorAll("button:not([disabled])")].find((one) => one.textContent === focused)?.focus();
  };
  show(0);
  return holder;
}
