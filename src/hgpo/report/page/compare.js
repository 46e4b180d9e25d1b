/* View 4: the same steps under every estimator, the largest disagreements first. */

function compareView(data, chosen) {
  const [first, second] = [data.estimators.find((e) => e.key === chosen[0]), data.estimators.find((e) => e.key === chosen[1])];
  const compared = first && second ? [first, second] : data.estimators;
  const spreads = disagreements(data, compared);
  const order = range(0, data.size).sort((a, b) => spreads[b] - spreads[a] || a - b).filter((step) => spreads[step] > 0);
  return [
    h("h1", {}, "Estimators compared"),
    h("p", { class: "note" }, "Each estimator's advantages are divided by their root mean square over the sampled steps; a step's disagreement is the largest less the smallest of them."),
    h("h2", {}, "How often two have opposite signs"),
    h("p", { class: "note" }, "Share among all steps, sampled or not, for which neither advantage is 0. A cell shows the steps of that pair."),
    signMatrix(data),
    h("h2", {}, first && second ? `Largest disagreements: ${first.label}, ${second.label}` : "Largest disagreements of all"),
    first && second ? h("p", {}, link("#compare", "compare all")) : "",
    pagedTable(
      ["step", "task", "action", "return", "disagreement", ...data.estimators.map((estimator) => estimator.label)], order,
      (step) => [
        h("span", {}, stepLink(data, step), " of ", visible(data.trajectoryId(data.steps.trajectory[step]))),
        link(data.taskLink(data.steps.task[step]), visible(data.taskId(data.steps.task[step]))),
        visible(shortened(actionOf(data, step), 40)),
        figureCell(number(data.steps.return[step])),
        figureCell(number(spreads[step], 3), { "data-value": spreads[step] }),
        ...data.estimators.map((estimator) => h("td", { class: "figure", "data-key": estimator.key, "data-value": estimator.advantage[step] }, badge(estimator.advantage[step]))),
      ],
      { id: "disagreements" },
    ),
  ];
}

function rootMeanSquare(values) {
  let sum = 0;
  for (const value of values) sum += value * value;
  return Math.sqrt(sum / values.length);
}

/* Per step: largest less smallest of the advantages in their own units. */
function disagreements(data, estimators) {
  const scales = estimators.map((estimator) => rootMeanSquare(estimator.advantage) || 1);
  return Float64Array.from({ length: data.size }, (_, step) => {
    let [low, high] = [Infinity, -Infinity];
    estimators.forEach((estimator, place) => {
      const value = estimator.advantage[step] / scales[place];
      low = Math.min(low, value);
      high = Math.max(high, value);
    });
    return high - low;
  });
}

function signMatrix(data) {
  const share = (first, second) => {
    let [compared, opposite] = [0, 0];
    for (const figures of data.updates) {
      const pair = figures.disagreement[`${first.key} ${second.key}`] || figures.disagreement[`${second.key} ${first.key}`];
      if (pair) [compared, opposite] = [compared + pair[0], opposite + pair[1]];
    }
    return compared ? opposite / compared : null;
  };
  return table(["", ...data.estimators.map((estimator) => estimator.label)], data.estimators.map((first) => [
    h("b", {}, first.label),
    ...data.estimators.map((second) => {
      if (first === second) return figureCell("");
      const value = share(first, second);
      return h("td", { class: "figure", "data-pair": `${first.key} ${second.key}`, "data-value": value }, link(`#compare=${first.key},${second.key}`, percent(value)));
    }),
  ]), { id: "signs" });
}
