/* Several runs side by side: what they were worth, how they learned, how their settings differ. */

function runsView(header) {
  const { runs, charts, differing } = header;
  return [
    h("h1", {}, "Runs side by side"),
    table(["run", "estimator", "before", "after", "gain, points", "played"], runs.map((run) => {
      const [first, last] = [run.heldOut[0], run.heldOut[run.heldOut.length - 1]];
      const estimator = run.settings.find((setting) => setting.name === "advantage.estimator");
      return [
        h("b", {}, shown(run.label)), shown(estimator ? estimator.value : null),
        rateCell(first, "before"), last === first ? "" : rateCell(last, "after"),
        run.gain ? figureCell(`${points(run.gain.mean)} [${points(run.gain.low)}, ${points(run.gain.high)}]`, { "data-figure": "gain", "data-value": run.gain.mean }) : "",
        last ? h("span", { class: "note" }, shown(last.panel), last.name === "after" ? "" : `, update ${last.update}`) : "",
      ];
    }), { id: "runs" }),
    h("p", { class: "note" }, "Success on held-out tasks with its 95 % interval. The difference between runs, paired by task: hgpo compare."),
    h("div", { class: "charts" }, charts.map(({ id, title, note, spec }) => chart(title, note, spec, id))),
    h("h2", {}, "Settings that differ"),
    differing.length
      ? table(["setting", ...runs.map((run) => run.label)], differing.map(({ name, meaning, values }) =>
        [h("span", { title: meaning }, name), ...values.map((value) => shown(value))]), { id: "differing" })
      : h("p", {}, "None."),
  ];
}

function rateCell(point, name) {
  if (!point) return "";
  const { mean, low, high } = point.success;
  return figureCell(`${percent(mean)} [${percent(low)}, ${percent(high)}]`, { "data-figure": name, "data-value": mean });
}
