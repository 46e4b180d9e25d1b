/* View 2: the trajectories of one task, as a graph and side by side. */

function taskView(data, task, key) {
  const trajectories = data.trajectoriesOfTask(task);
  const estimator = data.estimator(key);
  const type = data.text(data.tasks.type[task]);
  const won = data.wonCount(trajectories);
  const unit = data.unitOf(task);
  return [
    h("h1", {}, "Task ", visible(data.taskId(task))),
    h("p", {}, unit ? `${unit}. ` : "", type ? ["Type ", visible(type), ". "] : "", `${counted(trajectories.length, "trajectory", "trajectories")}${won && `, ${won} won`}. `, neighbours(data, task)),
    h("h2", {}, "Transitions"),
    graphView(data, task),
    h("h2", {}, "Side by side"),
    estimatorSelect(data, estimator, (chosen) => go(`${data.taskLink(task)}&estimator=${chosen}`)),
    sideBySide(data, trajectories, estimator),
  ];
}

function neighbours(data, task) {
  const links = [];
  if (task > 0) links.push(link(data.taskLink(task - 1), "← previous task"), " ");
  if (task + 1 < data.tasks.id.length) links.push(link(data.taskLink(task + 1), "next task →"));
  return links;
}

function estimatorSelect(data, chosen, change) {
  const select = h("select", { id: "estimator", change: () => change(select.value) }, data.estimators.map((estimator) =>
    h("option", { value: estimator.key, selected: estimator.key === chosen.key }, estimator.label + (estimator.trained ? " – trained with" : ""))));
  return h("p", {}, h("label", {}, "advantages of ", select));
}

/* Time runs down, trajectories stand beside each other; each cell is a step with its action and advantage. */
function sideBySide(data, trajectories, estimator) {
  const longest = Math.max(...trajectories.map((trajectory) => data.trajectoryLength[trajectory]));
  const headings = trajectories.map((trajectory) => h("span", {}, visible(data.trajectoryId(trajectory)), h("br"), outcome(data, trajectory)));
  const rows = range(0, longest).map((time) => [
    figureCell(String(time)),
    ...trajectories.map((trajectory) => {
      if (time >= data.trajectoryLength[trajectory]) return "";
      const step = data.trajectoryStart[trajectory] + time;
      const advantage = estimator.advantage[step];
      return h("td", { class: `turn ${signClass(advantage)}` },
        link(data.stepLink(step), visible(shortened(actionOf(data, step), 60))), h("br"), badge(advantage), " ",
        h("span", { class: "note" }, `return ${number(data.steps.return[step])}`));
    }),
  ]);
  return table(["time", ...headings], rows, { class: "turns" });
}

function actionOf(data, step) {
  return data.stepText("action", step) ?? data.stepText("response", step) ?? data.stepText("observation", step);
}
