/* View 3: one step, the steps it was compared with at every level, and where its advantage came from. */

function stepView(data, step, key) {
  const estimator = data.estimator(key);
  const trajectory = data.steps.trajectory[step];
  const task = data.steps.task[step];
  const fault = data.stepText("fault", step);
  return [
    h("h1", {}, `Step ${data.steps.step[step]} of `, visible(data.trajectoryId(trajectory))),
    h("p", {}, data.unit ? `${data.unitOf(task)}, task ` : "Task ", link(data.taskLink(task), visible(data.taskId(task))), ". ", outcome(data, trajectory), ". ", link(data.stepLink(step), "link to this step")),
    strip(data, step, estimator),
    facts(data, step, estimator),
    fault ? h("p", { class: "notice" }, "The response was ill-formed: ", visible(fault)) : "",
    textBox("Observation", data.stepText("observation", step)),
    textBox("State key, equal in its group of level 0", data.stepText("state", step)),
    textBox("Prompt", data.stepText("prompt", step)),
    answerBoxes(data.stepText("response", step), data.stepText("action", step)),
    h("h2", {}, "Where its advantage came from"),
    estimatorSelect(data, estimator, (chosen) => go(`${data.stepLink(step)}&estimator=${chosen}`)),
    waterfall(estimator, step),
    estimator.levels.length ? "" : h("p", { class: "note" }, `${estimator.label} has no levels of groups: its advantage is one number.`),
    estimator.levels.map((level) => levelSection(data, estimator, level, step)),
  ];
}

/* All steps of the trajectory, the present one marked; the arrow keys walk along it. */
function strip(data, step, estimator) {
  return h("nav", { class: "strip", "aria-label": "steps of the trajectory" }, data.stepsOfTrajectory(data.steps.trajectory[step]).map((other) =>
    h("a", { href: data.stepLink(other), class: signClass(estimator.advantage[other]), "aria-current": other === step ? "step" : null, title: `${shortened(actionOf(data, other))}, advantage ${signed(estimator.advantage[other])}` }, String(data.steps.step[other]))));
}

function facts(data, step, estimator) {
  const entries = [
    ["return", number(data.steps.return[step], 6), "return"],
    ["reward", number(data.steps.reward[step], 6), "reward"],
    ["penalty", number(data.steps.penalty[step], 6), "penalty"],
    [`advantage, ${estimator.label}`, number(estimator.advantage[step], 6), "advantage"],
  ];
  return h("dl", { class: "facts" }, entries.map(([name, value, id]) => h("div", {}, h("dt", {}, name), h("dd", { id: `fact-${id}` }, value))));
}

function textBox(name, text) {
  if (text === null) return "";
  return h("section", { class: "box" }, h("h3", {}, name), h("div", { class: "text" }, visible(text)));
}

function answerBoxes(response, action) {
  if (response === action) return textBox("Response, and the action", action);
  return [textBox("Response", response), textBox("Action", action)];
}

function levelName(level) {
  if (level.k === null) return "Episode";
  return `Level ${level.k}`;
}

function waterfall(estimator, step) {
  if (!estimator.levels.length) return "";
  let from = 0;
  const bars = estimator.levels.map((level) => {
    const contribution = level.weight[step] * level.advantage[step];
    const bar = { name: levelName(level), from, to: from + contribution, end: Math.max(from, from + contribution), text: signed(contribution), sign: signClass(contribution) };
    from += contribution;
    return bar;
  });
  const total = estimator.advantage[step];
  bars.push({ name: "advantage", from: 0, to: total, end: Math.max(0, total), text: signed(total), sign: "total" });
  const colours = { field: "sign", type: "nominal", legend: null, scale: { domain: ["above", "below", "zero", "total"], range: ["#0072B2", "#D55E00", "#888888", css("--ink")] } };
  const y = { field: "name", type: "nominal", sort: null, title: null };
  const spec = {
    width: "container", height: 24 * bars.length, padding: { top: 5, bottom: 5, left: 5, right: 48 }, data: { values: bars },
    layer: [
      { mark: { type: "bar", height: 14 }, encoding: { y, x: { field: "from", type: "quantitative", title: "weight × advantage, added up" }, x2: { field: "to" }, color: colours } },
      { mark: { type: "text", align: "left", dx: 5 }, encoding: { y, x: { field: "end", type: "quantitative" }, text: { field: "text" } } },
    ],
  };
  return chart("The final advantage", "what each level added to it", spec, "waterfall");
}

function levelSection(data, estimator, level, step) {
  const members = data.group(level, step);
  const used = level.unused[step] === 0;
  const contribution = level.weight[step] * level.advantage[step];
  const own = data.trajectories.id[data.steps.trajectory[step]];
  const trajectories = new Set(members.map((member) => data.steps.trajectory[member]));
  return h("section", { class: "level", id: `level-${level.k ?? "episode"}`, "data-own": own },
    h("h3", {}, `${levelName(level)}: `, h("span", { class: "note" }, visible(level.name))),
    h("p", { class: used ? "" : "unused" }, used ? "Used: " : `Not used: ${data.unused[level.unused[step]]}. `,
      h("span", {}, "advantage ", figure("advantage", level.advantage[step]), " × weight ", figure("weight", level.weight[step]), " = ", figure("contribution", contribution))),
    members.length ? h("p", {}, figure("size", members.length), members.length === 1 ? " step of " : " steps of ", figure("trajectories", trajectories.size),
      trajectories.size === 1 ? " trajectory; mean " : " trajectories; mean ", figure("mean", level.mean[step]), ", std ", figure("std", level.std[step]), ".") : "",
    level.k === null ? episodeMembers(data, members, step) : groupMembers(data, estimator, level, members, step));
}

function figure(name, value) {
  return h("b", { "data-figure": name, "data-value": value }, number(value, 5));
}

/* The episode level compares trajectories: one row for each. */
function episodeMembers(data, members, step) {
  const trajectories = [...new Set(members.map((member) => data.steps.trajectory[member]))];
  return h("details", {}, h("summary", {}, counted(trajectories.length, "trajectory", "trajectories")),
    table(["trajectory", "", "steps", "sum of rewards"], trajectories.map((trajectory) => {
      const own = trajectory === data.steps.trajectory[step];
      const steps = data.stepsOfTrajectory(trajectory);
      return [h("span", {}, link(data.stepLink(steps[0]), visible(data.trajectoryId(trajectory))), own ? " (this one)" : ""), outcome(data, trajectory), steps.length, data.sumOfRewards(trajectory)];
    })));
}

function groupMembers(data, estimator, level, members, step) {
  if (members.length < 2) return "";
  const prompt = data.steps.prompt[step];
  const others = members.filter((member) => member !== step);
  const differing = prompt ? others.filter((member) => data.steps.prompt[member] !== prompt) : [];
  const ordered = [...differing, ...others.filter((member) => !differing.includes(member))];
  const summary = counted(others.length, "other") + (prompt ? `, ${differing.length} of them with a different prompt` : "");
  const similarity = data.similarities(level, step);
  const rows = (member) => [
    h("span", {}, visible(data.trajectoryId(data.steps.trajectory[member]))),
    stepLink(data, member),
    outcome(data, data.steps.trajectory[member]),
    figureCell(number(data.steps.return[member])),
    visible(shortened(actionOf(data, member), 60)),
    badge(estimator.advantage[member]),
    ...(level.source ? [matchCell(data, similarity.get(level.group[member]), member)] : []),
    promptCell(data, step, member, member === differing[0]),
  ];
  const matched = level.source ? ["matched by"] : [];
  return h("details", { open: true }, h("summary", {}, summary),
    longTable(["trajectory", "time", "", "return", "action", "advantage", ...matched, "its prompt beside this step's"], ordered, rows, { class: "members" }, 12));
}

/* Why the member is compared: an equal context, or the least similarity of the states of both contexts. */
function matchCell(data, similarity, member) {
  if (similarity === undefined) return h("span", { class: "note" }, "equal states");
  return h("span", {}, `similarity ${number(similarity, 3)}: `, visible(shortened(data.stepText("observation", member) ?? "", 80)));
}

function promptCell(data, step, member, open) {
  const [mine, other] = [data.steps.prompt[step], data.steps.prompt[member]];
  if (!mine || !other) return h("span", { class: "note" }, "no prompt stored");
  if (mine === other) return h("span", { class: "note" }, "the same");
  const holder = h("div", {});
  const details = h("details", { class: "prompt-diff", toggle: () => {
    if (details.open && !holder.childNodes.length) holder.append(markedDifference(data.text(mine), data.text(other)));
  } }, h("summary", {}, "different"), holder);
  if (open) details.open = true;
  return details;
}
