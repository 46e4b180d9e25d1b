/* Vega-Lite charts in the page's colours. Expressions are interpreted, so that no string is ever run as code. */

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function theme() {
  const [ink, faint, line] = [css("--ink"), css("--faint"), css("--line")];
  return {
    background: "transparent",
    font: "system-ui, sans-serif",
    view: { stroke: "transparent" },
    axis: { labelColor: faint, titleColor: faint, gridColor: line, domainColor: line, tickColor: line },
    legend: { labelColor: ink, titleColor: faint, orient: "bottom", symbolOpacity: 1 },
    text: { fill: ink, color: ink },
  };
}

async function draw(element, spec) {
  try {
    await window.vegaEmbed(element, spec, {
      mode: "vega-lite", ast: true, actions: false, defaultStyle: false, tooltip: false, renderer: "svg", config: theme(),
    });
  } catch (error) {
    element.replaceChildren(h("p", { class: "notice" }, `This chart could not be drawn: ${error.message}`));
  }
}

/* A figure: title, drawing, a description for screen readers, and the values. */
function chart(title, note, spec, id) {
  const element = h("div", { class: "chart", id: `chart-${id}` });
  requestAnimationFrame(() => draw(element, spec));
  const drawn = h("div", { role: "img", "aria-label": `${title}. ${inWords(spec)}` }, element);  // Vega sets its own on what it draws into
  return h("figure", { "aria-labelledby": `title-${id}` },
    h("figcaption", { id: `title-${id}` }, h("strong", {}, title), " ", h("span", { class: "note" }, note)), drawn, valuesOf(spec, title));
}

/* Where each line of a chart over updates (or files; a title of the axis names them) begins and ends. */
function inWords(spec) {
  const lines = Map.groupBy?.(spec.data.values.filter((value) => "update" in value), (value) => value.level ?? "") ?? new Map();
  const field = chartField(spec);
  const unit = spec.layer[0].encoding.x.title;
  const described = (value) => number(value[field]) + (unit ? ` at ${unit} ${value.update}` : "");
  return [...lines].map(([name, values]) => {
    const [first, last] = [values[0], values[values.length - 1]];
    return `${name === "" ? "" : `${name}: `}${described(first)}${last === first ? "" : `, ${described(last)}`}.`;
  }).join(" ");
}

function chartField(spec) {
  return spec.layer.map((layer) => layer.encoding.y.field).find((field) => field !== "smooth" && !field?.endsWith("_p10"));
}

/* The values as a table, made when it is opened. */
function valuesOf(spec, title) {
  const values = spec.data.values;
  if (!values.length || !("update" in values[0])) return "";
  const names = Object.keys(values[0]);
  const holder = h("div", {});
  const details = h("details", { class: "values", toggle: () => {
    if (details.open && !holder.childNodes.length) {
      holder.append(pagedTable(names, values, (value) => names.map((name) => (typeof value[name] === "number" ? value[name] : visible(value[name] ?? null))), { "aria-label": title }));
    }
  } }, h("summary", {}, "values"), holder);
  return details;
}
