/* View 1: every update in figures. They count all steps, also those that are not shown. */

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
    h("h1", {}, shown(data.source)),
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
  if (!data.figures.length) return "";
  return `Levels: ${levelsOfSummary(data.figures[0].summary).map((level) => `${levelLabel(level)}, ${level.name}`).join("; ")}. `;
}

function countsLine(data) {
  const { steps, tasks, shownSteps, shownTasks } = data.count;
  const whole = (count) => count.toLocaleString("en");
  const all = `${whole(steps)} steps of ${whole(tasks)} tasks in ${data.figures.length} update${data.figures.length === 1 ? "" : "s"}.`;
  if (shownSteps === steps) return `${all} All can be looked at.`;
  return `${all} The figures count all of them; ${whole(shownSteps)} steps of ${whole(shownTasks)} tasks can be looked at: whole tasks, spread evenly over the updates.`;
}

function noticesBox(data) {
  if (!data.notices.length) return "";
  return h(
    "details",
    { class: "notice", open: true, id: "notices" },
    h("summary", {}, `${data.notices.length} thing${data.notices.length === 1 ? "" : "s"} could not be read`),
    h("ul", {}, data.notices.map((notice) => h("li", {}, shown(notice)))),
  );
}

function levelsOfUpdate(data) {
  if (!data.figures.length) return h("p", { class: "note" }, "No steps could be read.");
  const holder = h("div", { id: "levels" });
  const select = h(
    "select",
    { id: "update", change: () => show(Number(select.value)) },
    data.figures.map((figures, index) => h("option", { value: index, selected: index === data.figures.length - 1 }, String(figures.update))),
  );
  const show = (index) => {
    const levels = levelsOfSummary(data.figures[index].summary);
    holder.replaceChildren(
      table(
        ["level", "its groups", ...LEVEL_FIGURES.map(([heading]) => heading)],
        levels.map((level) => [
          levelLabel(level), shown(level.name),
          ...LEVEL_FIGURES.map(([, name, format]) => figureCell(format(level[name]), { "data-figure": name })),
        ]),
      ),
    );
  };
  show(data.figures.length - 1);
  return [h("p", {}, h("label", {}, "update ", select)), holder];
}
