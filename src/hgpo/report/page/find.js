/* Steps and tasks by words and filters. */

const FILTERS = {
  update: (data, step, value) => data.update(step) === Number(value),
  task: (data, step, value) => data.taskId(data.steps.task[step]).includes(value),
  type: (data, step, value) => (data.text(data.tasks.type[data.steps.task[step]]) ?? "").includes(value),
  time: (data, step, value) => data.steps.step[step] === Number(value),
  won: (data, step, value) => data.trajectories.success[data.steps.trajectory[step]] === (value === "yes" ? WON : 0),
  above: (data, step, value) => data.estimators[0].advantage[step] > Number(value),
  below: (data, step, value) => data.estimators[0].advantage[step] < Number(value),
  unused: (data, step, value) => (levelAt(data, value)?.unused[step] ?? 0) > 0,
  differs: (data, step, value) => Boolean(data.consistency[Number(value)]?.differs[step]),
};

const FILTER_HELP = [
  ["cup fridge", "both words in observation, prompt, response, action or a task's name"],
  ["update:40", "steps of update 40"],
  ["task:text, type:text", "part of the task's name or type, without blanks"],
  ["time:3", "fourth steps of trajectories"],
  ["won:yes, won:no", "steps of trajectories that won, or did not"],
  ["above:0.5, below:-0.5", "by advantage (of the first estimator)"],
  ["unused:1", "steps for which level 1 was not used"],
  ["differs:0", "steps whose group at level 0 has different prompts"],
];

function levelAt(data, k) {
  const followed = data.estimators.find((estimator) => estimator.key === data.followed);
  return followed.levels.find((level) => level.k === Number(k));
}

/* Split a query into filters that are known and words. */
function parseQuery(query) {
  const [filters, wanted] = [[], []];
  for (const token of query.trim().split(/\s+/).filter(Boolean)) {
    const colon = token.indexOf(":");
    const test = colon > 0 && Object.hasOwn(FILTERS, token.slice(0, colon)) ? FILTERS[token.slice(0, colon)] : null;
    if (test) filters.push([test, token.slice(colon + 1)]);
    else wanted.push(token.toLowerCase());
  }
  return { filters, wanted };
}

/* For each word, which texts contain it; every text is searched once. */
function textsWith(data, wanted) {
  return wanted.map((word) => {
    const lineHas = data.lines.map((line) => line.toLowerCase().includes(word));
    const textHas = new Uint8Array(data.texts.start.length);
    for (let text = 1; text + 1 < data.texts.start.length; text++) {
      for (let at = data.texts.start[text]; at < data.texts.start[text + 1]; at++) {
        if (lineHas[data.texts.line[at]]) textHas[text] = 1;
      }
    }
    return textHas;
  });
}

function findSteps(data, query) {
  const { filters, wanted } = parseQuery(query);
  const found = textsWith(data, wanted);
  const names = ["observation", "prompt", "response", "action"];
  return range(0, data.size).filter((step) =>
    filters.every(([test, value]) => test(data, step, value)) &&
    found.every((texts) => names.some((name) => texts[data.steps[name][step]]) || texts[data.tasks.id[data.steps.task[step]]]));
}

function findView(data, query) {
  const steps = findSteps(data, query);
  const tasks = [...new Set(steps.map((step) => data.steps.task[step]))];
  return [
    h("h1", {}, query ? ["Found: ", visible(query)] : "All tasks"),
    h("p", { id: "found" }, `${counted(steps.length, "step")} of ${counted(tasks.length, "task")}.`),
    longTable([data.unit, "task", "type", "trajectories", "won", "steps found"], tasks, (task) => {
      const trajectories = data.trajectoriesOfTask(task);
      return [
        figureCell(data.unit && String(data.tasks.update[task])), link(data.taskLink(task), visible(data.taskId(task))), visible(data.text(data.tasks.type[task]) ?? ""),
        trajectories.length, figureCell(data.wonCount(trajectories) || "–"),
        steps.filter((step) => data.steps.task[step] === task).length,
      ];
    }, {}, 20),
    query ? h("h2", {}, "Steps") : "",
    query ? longTable(["step", "observation", "action", "return", "advantage"], steps, (step) => [
      h("span", {}, stepLink(data, step), " of ", visible(data.trajectoryId(data.steps.trajectory[step]))),
      visible(shortened(data.stepText("observation", step), 70)), visible(shortened(actionOf(data, step), 50)),
      figureCell(number(data.steps.return[step])), badge(data.estimators[0].advantage[step]),
    ], { id: "found-steps" }) : "",
  ];
}
