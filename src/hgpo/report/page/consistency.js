/* View 5: steps in one group with different prompts, and the effect on their advantages. */

const TOTALS = ["groups", "differ", "grouped_steps", "steps", "alone", "compared", "flipped", "change"];

function consistencyView(data) {
  const heading = h("h1", {}, "Context consistency");
  if (!data.consistency.length) {
    return [heading, h("p", { class: "notice" }, "These rollouts have no prompts that could be compared.")];
  }
  const levels = totalsByLevel(data);
  return [
    heading,
    h("p", {}, "HGPO's levels group steps by their observations, but the policy saw prompts. Every group whose prompts are not all equal is split by prompt, and each step's advantage among equal prompts is compared with its advantage in the whole group (paper's arithmetic, before weights)."),
    table(
      ["level", "groups of two or more", "different prompts", "steps in them", "alone among equal prompts", "mean change of the others", "sign flips", "variance explained by prompts, adjusted"],
      levels.map((level) => [
        String(level.k), level.groups,
        share(level.differ, level.groups, "differ"), share(level.steps, level.grouped_steps, "steps"),
        share(level.alone, level.steps, "alone"),
        figureCell(number(level.steps > level.alone ? level.change / (level.steps - level.alone) : null), { "data-figure": "change" }),
        share(level.flipped, level.compared, "flipped"),
        figureCell(percent(level.explained), { "data-figure": "explained" }),
      ]),
      { id: "consistency" },
    ),
    h("p", { class: "note" }, "The last column is the share of the variance of returns inside these groups that lies between prompts, beyond what as many prompts explain by chance", data.unit ? `; mean over ${data.unit}s` : "", ". Near 0, the differences between prompts did not affect the return."),
    data.consistency.map((level) => worstGroups(data, level)),
  ];
}

function share(part, whole, name) {
  return figureCell(percent(whole ? part / whole : null), { "data-figure": name, "data-value": whole ? part / whole : null });
}

function totalsByLevel(data) {
  return data.consistency.map(({ k }) => {
    const levels = data.updates.map((figures) => figures.consistency[k]).filter(Boolean);
    const total = { k };
    for (const name of TOTALS) total[name] = levels.reduce((sum, level) => sum + level[name], 0);
    const explained = levels.map((level) => level.explained).filter((value) => value !== null);
    total.explained = explained.length ? explained.reduce((sum, value) => sum + value, 0) / explained.length : null;
    return total;
  });
}

function alone(data, members, step) {
  return members.every((member) => member === step || data.steps.prompt[member] !== data.steps.prompt[step]);
}

/* Groups of the sampled steps by the largest change among their members. */
function worstGroups(data, level) {
  const paper = data.estimator("paper").levels[level.k];
  if (!paper) return "";
  const groups = new Map();
  for (let step = 0; step < data.size; step++) {
    if (!level.differs[step]) continue;
    const change = Math.abs(level.whole[step] - level.split[step]);
    const found = groups.get(paper.group[step]);
    if (!found || change > found.change) groups.set(paper.group[step], { step, change });
  }
  const ordered = [...groups.values()].sort((a, b) => b.change - a.change || a.step - b.step);
  return h("section", {},
    h("h2", {}, `HGPO's level ${level.k}, ${paper.name}: ${counted(ordered.length, "sampled group")} with different prompts`),
    ordered.length ? longTable(["step", "observation", "members", "prompts", "advantage in the group", "among equal prompts"], ordered, ({ step }) => {
      const members = data.group(paper, step);
      return [
        h("span", {}, stepLink(data, step), " of ", visible(data.trajectoryId(data.steps.trajectory[step]))),
        visible(shortened(data.stepText("observation", step), 70)),
        members.length, new Set(members.map((member) => data.steps.prompt[member])).size,
        badge(level.whole[step]), alone(data, members, step) ? h("span", { class: "note" }, "alone") : badge(level.split[step]),
      ];
    }, {}, 15) : "");
}
