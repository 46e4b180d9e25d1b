/* A task's trajectories as one graph: states are nodes, actions are edges. igraph places the nodes (report/document.py). */

const COLUMN = 120;
const ROW = 52;
const MARGIN = 64;
const KINDS = { observed: 0, won: 1, ended: 2 };

/* The colour-blind safe ramp cividis at five places. */
const RAMP = [[0, 32, 77], [66, 77, 108], [124, 123, 120], [187, 175, 113], [255, 234, 70]];

function rampColour(share) {
  const at = Math.min(Math.max(share, 0), 1) * (RAMP.length - 1);
  const low = Math.min(Math.floor(at), RAMP.length - 2);
  const mixed = RAMP[low].map((value, channel) => Math.round(value + (at - low) * (RAMP[low + 1][channel] - value)));
  return `rgb(${mixed.join(" ")})`;
}

/* Nodes with visits and mean return, edges by (source, target, action) with the trajectories that took them. */
function taskGraph(data, task) {
  const first = data.nodes.start[task];
  const nodes = range(first, data.nodes.start[task + 1]).map((node) => ({
    text: data.text(data.nodes.text[node]), kind: data.nodes.kind[node], visits: 0, total: 0, steps: [],
    x: MARGIN + COLUMN * data.nodes.column[node], y: MARGIN + ROW * data.nodes.row[node],
  }));
  const edges = new Map();
  for (let step = data.taskStart[task]; step < data.taskStart[task + 1]; step++) {
    const [source, target] = [data.steps.source[step], data.steps.target[step]];
    nodes[source].visits += 1;
    nodes[source].total += data.steps.return[step];
    nodes[source].steps.push(step);
    if (nodes[target].kind !== KINDS.observed) nodes[target].visits += 1;
    nodes[target].unknown = data.trajectories.success[data.steps.trajectory[step]] === UNKNOWN;
    const key = `${source} ${target} ${data.steps.action[step]}`;
    if (!edges.has(key)) edges.set(key, { source, target, action: data.stepText("action", step), steps: [], won: false });
    edges.get(key).steps.push(step);
    if (data.won(data.steps.trajectory[step])) edges.get(key).won = true;
  }
  for (const node of nodes) node.mean = node.steps.length ? node.total / node.steps.length : null;
  return { nodes, edges: [...edges.values()] };
}

function graphView(data, task) {
  const { nodes, edges } = taskGraph(data, task);
  const means = nodes.map((node) => node.mean).filter((mean) => mean !== null);
  const [low, high] = [Math.min(...means), Math.max(...means)];
  const share = (mean) => (high > low ? (mean - low) / (high - low) : 1);
  const width = Math.max(...nodes.map((node) => node.x)) + MARGIN + 60;
  const height = Math.max(...nodes.map((node) => node.y)) + MARGIN;
  const shownEdges = edges.map((edge) => drawEdge(data, nodes, edge));
  const shownNodes = nodes.map((node) => drawNode(data, node, share));
  return [
    h("div", { class: "scroll" }, svg(
      "svg",
      { class: "graph", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `transitions of all trajectories: ${counted(nodes.length, "state")}, ${counted(edges.length, "action")} between them` },
      svg("defs", {}, arrow("arrow"), arrow("arrow-won")), shownEdges, shownNodes,
    )),
    h("p", { class: "note" },
      "Circles: states, larger with more visits. Colour: mean return, ",
      h("span", { class: "ramp", "data-low": number(low), "data-high": number(high) }, `${number(low)} (dark) to ${number(high)} (yellow)`),
      ". ", nodes.some((node) => node.unknown) ? "■ end. " : "Thick lines: actions on paths that won; dashed: only on paths that did not. ✓ won, ✗ ended otherwise. ", "Empty circles: no trajectory continues from there."),
  ];
}

function arrow(id) {
  return svg("marker", { id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse", markerUnits: "userSpaceOnUse" }, svg("path", { d: "M0 0 L8 4 L0 8 z" }));
}

function radius(node) {
  return 7 + 2.6 * Math.sqrt(node.visits);
}

function drawNode(data, node, share) {
  const unknown = node.kind === KINDS.ended && node.unknown;
  const name = node.kind === KINDS.observed ? plain(node.text) : node.kind === KINDS.won ? "won" : unknown ? "end" : "ended without winning";
  const label = `${name}\n${counted(node.visits, "visit")}${node.mean === null ? "" : `, mean return ${number(node.mean)}`}`;
  const mark = node.kind === KINDS.observed
    ? svg("circle", { r: radius(node), class: node.mean === null ? "only-reached" : "state", fill: node.mean === null ? null : rampColour(share(node.mean)), "data-visits": node.visits, "data-mean": node.mean })
    : svg("text", { class: node.kind === KINDS.won ? "end won" : "end lost" }, node.kind === KINDS.won ? "✓" : unknown ? "■" : "✗");
  const group = svg("g", { class: "node", transform: `translate(${node.x} ${node.y})` }, svg("title", {}, label), mark,
    svg("text", { class: "label", y: radius(node) + 12 }, node.kind === KINDS.observed ? shortened(lastSentence(node.text), 20) : name));
  return node.steps.length ? svg("a", { href: data.stepLink(node.steps[0]), "aria-label": label }, group) : group;
}

/* Observations often begin alike; states usually differ at the beginning of the last line. */
function lastSentence(text) {
  return text === null ? "none" : text.trim().split("\n").pop();
}

function drawEdge(data, nodes, edge) {
  const [from, to] = [nodes[edge.source], nodes[edge.target]];
  const kind = edge.won ? "edge won" : "edge";
  const label = `${plain(edge.action)}\n${counted(edge.steps.length, "time")}`;
  const path = svg("path", { class: kind, d: curve(from, to, edge), "marker-end": `url(#arrow${edge.won ? "-won" : ""})`, "data-times": edge.steps.length, "stroke-width": (edge.won ? 2 : 1) + 0.35 * Math.sqrt(edge.steps.length) });
  return svg("a", { href: data.stepLink(edge.steps[0]), tabindex: -1 }, svg("title", {}, label), path);
}

function curve(from, to, edge) {
  if (edge.source === edge.target) {
    const r = radius(from);
    return `M${from.x - r / 2} ${from.y - r} C${from.x - 26} ${from.y - r - 30}, ${from.x + 26} ${from.y - r - 30}, ${from.x + r / 2} ${from.y - r}`;
  }
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const length = Math.hypot(dx, dy);
  const [ux, uy] = [dx / length, dy / length];
  const bend = Math.min(26, 8 + length / 14) * (1 + (edge.steps[0] % 3) / 3);
  const [mx, my] = [(from.x + to.x) / 2 - uy * bend, (from.y + to.y) / 2 + ux * bend];
  const end = to.kind === KINDS.observed ? radius(to) + 1 : 12;
  const back = Math.hypot(mx - to.x, my - to.y);
  const [ex, ey] = [to.x + ((mx - to.x) / back) * end, to.y + ((my - to.y) / back) * end];
  return `M${from.x} ${from.y} Q${mx} ${my} ${ex} ${ey}`;
}
