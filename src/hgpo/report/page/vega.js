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

function chart(title, note, spec, id) {
  const element = h("div", { class: "chart", id: `chart-${id}`, role: "img", "aria-label": title });
  requestAnimationFrame(() => draw(element, spec));
  return h("figure", {}, h("figcaption", {}, h("strong", {}, title), " ", h("span", { class: "note" }, note)), element);
}
