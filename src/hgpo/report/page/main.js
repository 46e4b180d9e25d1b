/* Links and keys. */

/* Nothing in this page may be built from a string of HTML; only emptying an element is allowed. */
if (window.trustedTypes) {
  window.trustedTypes.createPolicy("default", { createHTML: (text) => (text === "" ? "" : null) });
}

const TABS = [
  ["overview", "1 Overview", () => "#overview"],
  ["task", "2 Task", (data, place) => data.taskLink(place.task)],
  ["step", "3 Step", (data, place) => data.stepLink(place.step)],
  ["compare", "4 Estimators", () => "#compare"],
  ["consistency", "5 Consistency", () => "#consistency"],
];
const KEYS = [
  ["1 … 5", "the five views"],
  ["/", "find; Enter shows what was found, Esc leaves"],
  ["← →", "step view: the step before, after"],
  ["[ ]", "task view: the task before, after"],
  ["j k", "the next, the previous link of the page; Enter follows it"],
  ["?", "this help"],
];

let data = null;
const place = { task: 0, step: 0 };

function go(target) {
  window.location.hash = target;
}

/* "#step=…&estimator=paper" as {view: "step", value: "…", estimator: "paper"}. */
function readHash() {
  const [head, ...rest] = window.location.hash.slice(1).split("&");
  const [view, ...value] = head.split("=");
  const options = Object.fromEntries(rest.map((part) => part.split("=")));
  return { view: view || "overview", value: value.join("="), estimator: options.estimator };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function render() {
  const { view, value, estimator } = readHash();
  const main = document.getElementById("main");
  let content;
  if (view === "step") content = stepFromLink(value, estimator);
  else if (view === "task") content = taskFromLink(value, estimator);
  else if (view === "compare") content = compareView(data, value.split(","));
  else if (view === "consistency") content = consistencyView(data);
  else if (view === "find") content = findView(data, decoded(value));
  else content = overviewView(data);
  main.replaceChildren(...content.flat(Infinity).filter((child) => child !== null && child !== undefined));
  main.dataset.view = view;
  drawTabs(view);
  window.scrollTo(0, 0);
  main.dataset.link = window.location.hash;  // last, so that tests that wait for the link find the whole view
}

function stepFromLink(value, estimator) {
  const [update, id, time] = value.split("/");
  const step = data.findStep(Number(update), decoded(id ?? ""), Number(time));
  if (!(step >= 0)) return notShown("step");
  [place.step, place.task] = [step, data.steps.task[step]];
  return stepView(data, step, estimator ?? place.estimator);
}

function taskFromLink(value, estimator) {
  const [update, id] = value.split("/");
  const task = data.findTask(Number(update), decoded(id ?? ""));
  if (task < 0) return notShown("task");
  if (task !== place.task) [place.task, place.step] = [task, data.taskStart[task]];
  return taskView(data, task, estimator ?? place.estimator);
}

function notShown(what) {
  return [h("h1", {}, `This ${what} is not in the report`), h("p", {}, `It may not be among the sampled tasks${data.unit === "update" ? "; hgpo inspect --update N shows all tasks of an update" : ""}.`)];
}

function drawTabs(view) {
  document.getElementById("tabs").replaceChildren(...TABS.map(([name, label, target]) =>
    h("a", { href: data.size ? target(data, place) : "#overview", "aria-current": name === view ? "page" : null }, label)));
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "");
  if (typing) {
    if (event.key === "Escape") document.activeElement.blur();
    return;
  }
  const { view } = readHash();
  const tab = TABS[Number(event.key) - 1];
  if (event.key === "/") document.getElementById("query").focus();
  else if (event.key === "?") showHelp();
  else if (tab && data.size) go(tab[2](data, place));
  else if (view === "step" && (event.key === "ArrowLeft" || event.key === "ArrowRight")) walk(event.key === "ArrowRight" ? 1 : -1);
  else if (view === "task" && (event.key === "[" || event.key === "]")) nextTask(event.key === "]" ? 1 : -1);
  else if (event.key === "j" || event.key === "k") focusLink(event.key === "j" ? 1 : -1);
  else return;
  event.preventDefault();
}

function walk(by) {
  const step = place.step + by;
  if (data.steps.trajectory[step] === data.steps.trajectory[place.step]) go(data.stepLink(step));
}

function nextTask(by) {
  const task = place.task + by;
  if (task >= 0 && task < data.tasks.id.length) go(data.taskLink(task));
}

function focusLink(by) {
  const links = [...document.querySelectorAll("main a, main summary, main button")].filter((element) => element.checkVisibility?.() ?? true);
  const at = links.indexOf(document.activeElement);
  links[at < 0 ? 0 : (at + by + links.length) % links.length]?.focus();
}

function drawHelp() {
  const list = (entries) => h("dl", { class: "help" }, entries.map(([key, meaning]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, meaning)]));
  const help = document.getElementById("help");
  help.append(h("h2", {}, "Keys"), list(KEYS), h("h2", {}, "Search"), list(FILTER_HELP), h("button", { type: "button", click: () => help.close() }, "close"));
}

/* From its first line: the button at its end, which gets the focus, would scroll there on a small screen. */
function showHelp() {
  const help = document.getElementById("help");
  help.showModal();
  help.scrollTop = 0;
}

/* Choose the task and the step that the tabs show first. */
function begin() {
  if (!data.size) return;
  place.task = data.instructiveTask();
  place.step = data.instructiveStep(place.task);
}

async function start() {
  try {
    data = new Data(await unpack(document.getElementById("data").textContent));
    begin();
  } catch (error) {
    document.getElementById("main").replaceChildren(h("p", { class: "notice" }, `The data in this file cannot be read: ${error.message}`));
    return;
  }
  drawHelp();
  document.getElementById("help-button").addEventListener("click", showHelp);
  document.getElementById("search").addEventListener("submit", (event) => {
    event.preventDefault();
    document.activeElement.blur();
    go(`#find=${encodeURIComponent(document.getElementById("query").value)}`);
  });
  window.addEventListener("hashchange", render);
  document.addEventListener("keydown", onKey);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
  render();
}

start();
