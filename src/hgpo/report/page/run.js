/* Facts of the run: success on held-out tasks, and the settings. */

function runBox(run) {
  return h("section", { id: "run", "aria-label": "the run" }, heldOutBox(run), settingsBox(run));
}

function heldOutBox(run) {
  if (!run.heldOut.length) return "";
  const [first, last] = [run.heldOut[0], run.heldOut[run.heldOut.length - 1]];
  const entries = [heldOutEntry(first)];
  if (last !== first) entries.push(heldOutEntry(last));
  if (run.gain) {
    const { mean, low, high, tasks, detectable } = run.gain;
    const interval = `95 % interval ${points(low)} to ${points(high)}; ${tasks} tasks detect ≥ ${(100 * detectable).toFixed(1)}`;
    entries.push(["gain", `${points(mean)} points`, interval]);
  }
  return h("section", { class: "box", id: "held-out" },
    h("h2", {}, "Success on held-out tasks"),
    h("dl", { class: "facts" }, entries.map(([name, value, interval]) =>
      h("div", {}, h("dt", {}, name), h("dd", { id: `held-out-${name.split(" ")[0]}` }, value, h("span", { class: "note" }, ` ${interval}`))))),
    h("p", { class: "note" }, visible(run.evaluationSet), "."));
}

function heldOutEntry(point) {
  const names = { before: "before training", after: "after training" };
  const { mean, low, high } = point.success;
  return [names[point.name] ?? `after update ${point.update}`, percent(mean), `95 % interval ${percent(low)} to ${percent(high)}`];
}

function points(share) {
  return signed(Number((100 * share).toFixed(1)) + 0, 4);
}

function settingsBox(run) {
  if (!run.settings.length) return "";
  const changed = run.settings.filter((setting) => setting.changed);
  return h("section", { class: "box", id: "run-settings" },
    h("h2", {}, "Settings"),
    h("dl", { class: "facts small" }, run.headlines.map(({ name, value }) => h("div", {}, h("dt", {}, name), h("dd", {}, visible(value))))),
    h("details", { id: "all-settings" },
      h("summary", {}, `all ${run.settings.length}, ${changed.length} changed from the default`),
      table(["setting", "value", "meaning"], [...changed, ...run.settings.filter((setting) => !setting.changed)].map(({ name, value, changed, meaning }) =>
        [changed ? h("b", {}, name) : name, visible(value), h("span", { class: "note" }, visible(meaning))]), { class: "settings" })));
}
