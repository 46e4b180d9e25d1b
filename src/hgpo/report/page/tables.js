/* Tables of plain cells. Rows that lead somewhere hold a link, so that the keyboard reaches them. */

function table(headings, rows, attributes = {}) {
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      attributes,
      h("thead", {}, h("tr", {}, headings.map((heading) => h("th", { scope: "col" }, heading)))),
      h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map(cell)))),
    ),
  );
}

function cell(value) {
  if (typeof value === "number") return h("td", { class: "figure" }, number(value));
  if (value instanceof Node && value.nodeName === "TD") return value;
  return h("td", {}, value);
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
