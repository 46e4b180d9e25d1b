/* View 1: the metrics of every update. They count all steps, including those that are not sampled. */

function overviewView(data) {
  return [
    h("h1", {}, visible(data.source)),
    h("p", { id: "counts" }, countsLine(data)),
    data.wonRule ? h("p", { class: "note", id: "won-rule" }, `${data.wonRule}.`) : "",
    data.matching.length ? h("ul", { id: "matching" }, data.matching.map((line) => h("li", {}, visible(line)))) : "",
    noticesBox(data),
    data.run ? runBox(data.run) : "",
    data.size ? h("p", { id: "begin" }, link(data.taskLink(place.task), "Look at a task"), " whose trajectories ended differently, or at ", link("#find=", "all tasks"), ".") : "",
    h("p", { class: "note", id: "levels-of" }, `The charts by level show the ${data.levelsOf}; gamma ${data.gamma}. ${levelNames(data)}`),
    h("div", { class: "charts" }, data.charts.map(({ id, title, note, spec }) => chart(title, note, spec, id))),
    h("h2", {}, data.unit ? `One ${data.unit}: ${data.levelsOf}` : `All steps: ${data.levelsOf}`),
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
  const of = data.unit ? ` in ${counted(data.updates.length, data.unit)}` : "";
  const all = `${counted(steps, "step")} of ${counted(tasks, "task")}${of}.`;
  if (sampledSteps === steps) return `${all} All are in the report.`;
  return `${all} The metrics count all of them; ${counted(sampledSteps, "step")} of ${counted(sampledTasks, "whole task")} are in the report${data.unit ? `, spread evenly over the ${data.unit}s` : ""}.`;
}

function noticesBox(data) {
  if (!data.notices.length) return "";
  return h(
    "details",
    { class: "notice", open: true, id: "notices" },
    h("summary", {}, `${counted(data.notices.length, "problem")} in the input`),
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
        ["level", "its groups", ...data.levelFigures.map(([heading]) => heading)],
        levels.map((level) => [
          levelLabel(level), visible(level.name),
          ...data.levelFigures.map(([, name, isShare]) => figureCell((isShare ? percent : number)(level[name]), { "data-figure": name })),
        ]),
      ),
    );
  };
  show(data.updates.length - 1);
  return data.unit ? [h("p", {}, h("label", {}, `${data.unit} `, select)), holder] : holder;
}
