/* The difference of two texts, word by word: longest common subsequence after equal ends are cut off. */

const MOST_CELLS = 4_000_000;

/* [[-1 | 0 | 1, text]]: only in the first, in both, only in the second. */
function difference(first, second) {
  const a = words(first);
  const b = words(second);
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const middle = commonParts(a.slice(head, a.length - tail), b.slice(head, b.length - tail));
  return merged([[0, a.slice(0, head)], ...middle, [0, a.slice(a.length - tail)]]);
}

function words(text) {
  return text.match(/\s+|[^\s]+/gu) || [];
}

function commonParts(a, b) {
  if (!a.length || !b.length || a.length * b.length > MOST_CELLS) return [[-1, a], [1, b]];
  const width = b.length + 1;
  const length = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const at = i * width + j;
      length[at] = a[i] === b[j] ? length[at + width + 1] + 1 : Math.max(length[at + width], length[at + 1]);
    }
  }
  const parts = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) parts.push([0, [a[i++]]]), j++;
    else if (j === b.length || (i < a.length && length[(i + 1) * width + j] >= length[i * width + j + 1])) parts.push([-1, [a[i++]]]);
    else parts.push([1, [b[j++]]]);
  }
  return parts;
}

function merged(parts) {
  const result = [];
  for (const [side, tokens] of parts) {
    const text = tokens.join("");
    if (!text) continue;
    if (result.length && result[result.length - 1][0] === side) result[result.length - 1][1] += text;
    else result.push([side, text]);
  }
  return result;
}

/* Two prompts as one marked text: struck through what only this step has, underlined what only the other has. */
function markedDifference(first, second) {
  const tags = { "-1": "del", 0: "span", 1: "ins" };
  return h("div", { class: "text diff" }, difference(first, second).map(([side, text]) => h(tags[side], {}, visible(text))));
}
