/* View 1: every update in metrics. They count all steps, also those that are not sampled. */

const LEVEL_FIGURES = [
  ["usable", "usable_share", percent],
  ["no context", "no_context_share", percent],
  ["alone", "alone_share", percent],
  ["dropped", "dropped_share", percent],
  ["mean weight", "mean_weight", number],
  ["groups", "groups", number],
  ["size 10 %", "size_p10", number],
  ["size 50 %", "size_p50", number],
  ["size 90 %", "size_p90", number],
  ["largest", "size_max", number],
  ["variance explained", "variance_explained", percent],
  ["adjusted", "variance_explained_adjusted", percent],
  ["sign as previous", "sign_agreement", percent],
  ["sign as final", "sign_agreement_final", percent],
  ["prompts differ", "prompts_differ_steps", percent],
];

function overviewView(data) {
  return [
    h("h1", {}, visible(data.source)),
    h("p", { id: "counts" }, countsLine(data)),
    noticesBox(data),
    data.run ? runBox(data.run) : "",
    data.size ? h("p", { id: "begin" }, link(data.taskLink(place.task), "Look at a task"), " whose trajectories ended differently, or at ", link("#find=", "all tasks"), ".") : "",
    h("p", { class: "note", id: "levels-of" }, `The charts by level show the ${data.levelsOf}; gamma ${data.gamma}. ${levelNames(data)}`),
    h("div", { class: "charts" }, data.charts.map(({ id, title, note, spec }) => chart(title, note, spec, id))),
    h("h2", {}, `One update: ${data.levelsOf}`),
    levelsOfUpdate(data),
  ];
}

/* The episode level, where there is one, then the levels. */
function levelsOfSummary(summary) {
  return [...(summary.episode ? [summary.episode] : []), ...summary.levels];
}

function levelLabel(level) {
  return level.k === null ? "episode" : String(level.k);
}

/* What each level compares, in a sentence. */
function levelNames(data) {
  if (!data.updates.length) return "";
  return `Levels: ${levelsOfSummary(data.updates[0].summary).map((level) => `${levelLabel(level)}, ${level.name}`).join("; ")}. `;
}

function countsLine(data) {
  const { steps, tasks, sampledSteps, sampledTasks } = data.count;
  const whole = (count) => count.toLocaleString("en");
  const all = `${whole(steps)} steps of ${whole(tasks)} tasks in ${data.updates.length} update${data.updates.length === 1 ? "" : "s"}.`;
  if (sampledSteps === steps) return `${all} All can be looked at.`;
  return `${all} The metrics count all of them; ${whole(sampledSteps)} steps of ${whole(sampledTasks)} tasks can be looked at: whole tasks, spread evenly over the updates.`;
}

function noticesBox(data) {
  if (!data.notices.length) return "";
  return h(
    "details",
    { class: "notice", open: true, id: "notices" },
    h("summary", {}, `${data.notices.length} thing${data.notices.length === 1 ? "" : "s"} could not be read`),
    h("ul", {}, data.notices.map((notice) => h("li", {}, visible(notice)))),
  );
}

function levelsOfUpdate(data) {
  if (!data.updates.length) return h("p", { class: "note" }, "No steps could be read.");
  const holder = h("div", { id: "levels" });
  const select = h(
    "select",
    { id: "update", change: () => show(Number(select.value)) },
    data.updates.map((figures, index) => h("option", { value: index, selected: index === data.updates.length - 1 }, String(figures.update))),
  );
  const show = (index) => {
    const levels = levelsOfSummary(data.updates[index].summary);
    holder.replaceChildren(
      table(
        ["level", "its groups", ...LEVEL_FIGURES.map(([heading]) => heading)],
        levels.map((level) => [
          levelLabel(level), visible(level.name),
          ...LEVEL_FIGURES.map(([, name, format]) => figureCell(format(level[name]), { "data-figure": name })),
        ]),
      ),
    );
  };
  show(data.updates.length - 1);
  return [h("p", {}, h("label", {}, "update ", select)), holder];
}
