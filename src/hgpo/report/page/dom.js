/* Elements and numbers. All text of the data becomes text nodes. */

const SVG = "http://www.w3.org/2000/svg";

function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/* Characters that have an effect but no shape: controls (ANSI sequences begin with one), direction marks, invisible ones. */
const ACTING = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

function codePoint(character) {
  return `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/* Untrusted text; acting characters are shown as code points, and its direction does not affect other text. */
function visible(text, attributes = {}) {
  if (text === null || text === "") return h("span", { class: "absent" }, text === null ? "none" : "empty");
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(ACTING)) {
    parts.push(text.slice(end, match.index), h("span", { class: "acting", title: "an invisible character" }, codePoint(match[0])));
    end = match.index + match[0].length;
  }
  return h("bdi", attributes, ...parts, text.slice(end));
}

/* The same as plain text, for attributes and SVG. */
function plain(text) {
  return (text ?? "none").replace(ACTING, (character) => `[${codePoint(character)}]`);
}

function shortened(text, length = 90) {
  const line = plain(text).replace(/\s+/g, " ").trim();
  return line.length > length ? `${line.slice(0, length - 1)}…` : line;
}

function number(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return (value + 0).toLocaleString("en").replace("-", "−");  // + 0: no minus zero
  const rounded = Math.abs(value) >= 1e5 || Math.abs(value) < 1e-4 ? value.toExponential(2) : String(Number(value.toPrecision(digits)));
  return rounded.replace("-", "−");
}

/* A count with its noun: "1 step", "2,000 steps". */
function counted(count, noun, plural = `${noun}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? noun : plural}`;
}

function signed(value, digits = 3) {
  return value > 0 ? `+${number(value, digits)}` : number(value, digits);
}

function percent(share) {
  return share === null || share === undefined || Number.isNaN(share) ? "–" : `${(100 * share).toFixed(1)} %`.replace(/^-(?=0\.0 )/, "").replace("-", "−");
}

/* Advantages by sign: blue above, orange below, as strong as they are large. */
function signClass(value) {
  return value > 0 ? "above" : value < 0 ? "below" : "zero";
}

function badge(value) {
  return h("span", { class: `badge ${signClass(value)}` }, signed(value));
}

function outcome(data, trajectory) {
  const success = data.trajectories.success[trajectory];
  if (success === UNKNOWN) return h("span", { class: "note" }, `rewards sum to ${number(data.sumOfRewards(trajectory))}`);
  return h("span", { class: success ? "won" : "lost" }, success ? "✓ won" : "✗ not won");
}
