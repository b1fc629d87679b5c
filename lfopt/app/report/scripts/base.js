// Data, numbers, and the helpers that everything else is made with. Text from the model reaches the page as
// text nodes and attributes alone.

const D = JSON.parse(document.getElementById("data").textContent);
const SVG = document.getElementById("graph").namespaceURI;
const CLASSES = D.classes;
const $ = (id) => document.getElementById(id);
const sum = (values) => values.reduce((total, value) => total + value, 0);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, of] of Object.entries(value)) node.style.setProperty(key, of);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...present(children));
  return node;
}
const present = (children) => children.flat(Infinity)
  .filter((child) => child !== null && child !== undefined && child !== false);
const put = (node, ...children) => node.replaceChildren(...present(children));
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// -- numbers ------------------------------------------------------------------------------------------------

const count = (value) => Math.round(value).toLocaleString("en-US");
const bytes = (value) => `${count(value)}\u00a0B`;
const BUFFER = D.buffer ?? Infinity; // null in the data: no limit
const capacity = (value) => (value === Infinity ? "unlimited" : bytes(value));
const ofBuffer = (value) => (BUFFER === Infinity
  ? `${bytes(value)} of an unlimited buffer` : `${bytes(value)} of ${bytes(BUFFER)}`);
const filled = (value) => (BUFFER === Infinity ? "" : percent(value, BUFFER));
const andFilled = (value) => [bytes(value), filled(value)].filter(Boolean).join(", ");
const fixed = (value, digits) => value.toLocaleString("en-US",
  { minimumFractionDigits: digits, maximumFractionDigits: digits });
const percent = (part, whole, digits = 1) => (whole ? `${fixed((100 * part) / whole, digits)} %` : "–");

function size(value) {
  for (const [unit, name] of [[1 << 20, "MiB"], [1 << 10, "KiB"]]) {
    if (Math.abs(value) >= unit) return `${trimmed(value / unit)}\u00a0${name}`;
  }
  return bytes(value);
}
const trimmed = (value) => value.toLocaleString("en-US",
  { maximumFractionDigits: Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0 });

function metric(value, units) {
  let k = 0;
  while (Math.abs(value) >= 1000 && k < units.length - 1) [value, k] = [value / 1000, k + 1];
  return `${trimmed(value)} ${units[k]}`;
}
const macs = (value) => metric(value, ["MACs", "kMACs", "MMACs", "GMACs", "TMACs"]);
const joules = (picojoules) => metric(picojoules, ["pJ", "nJ", "µJ", "mJ", "J"]);
const shape = (extents) => extents.join("×") || "scalar";

// Cut in the middle, where names of neighbours are alike.
function shorten(text, width) {
  if (text.length <= width) return text;
  const left = Math.floor((width - 1) / 2);
  return `${text.slice(0, left)}…${text.slice(text.length - (width - 1 - left))}`;
}

// Characters that a name may take in a table, on a phone and elsewhere.
const room = (wide) => (innerWidth <= 760 ? 17 : wide);

// Round steps for an axis from 0 to `top`.
function ticks(top, about) {
  if (!(top > 0)) return [0];
  const rough = top / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((k) => k * power >= rough);
  return Array.from({ length: Math.floor(top / step) + 1 }, (_, k) => k * step);
}

// -- operators and groups -----------------------------------------------------------------------------------

const total = (group) => sum(group.by);
const unfused = (group) => total(group) + group.saved; // what its operators move alone
const times = (value, of) => (of ? `${trimmed(value / of)} times` : "\u2013");
const opName = (i) => D.ops.name[i];
const from = (i) => [D.ops.scope[i], D.ops.source[i]].filter(Boolean).join(", ");
const chip = (g, title) =>
  el("button", { type: "button", class: `chip b${D.colours[g]}`, title: title || `Group ${g}`,
    "aria-label": `Group ${g}`, onclick: () => select(g) }, String(g));

function span(group) {
  const names = group.ops.map(opName);
  return names.length === 1 ? names[0] : `${names[0]} … ${names[names.length - 1]}`;
}

// The same in a table: each of the two names keeps its ends; on a phone each has a line.
function shortSpan(group) {
  const names = [...new Set([group.ops[0], group.ops[group.ops.length - 1]])].map(opName);
  if (innerWidth <= 760) return names.map((name) => el("div", {}, shorten(name, 20)));
  return names.map((name) => shorten(name, names.length > 1 ? 15 : 34)).join(" … ");
}

// -- the one thing that changes: which group is selected ----------------------------------------------------

let selected = -1;
const watchers = [];
function select(group) {
  if (group < 0 || group >= D.groups.length || group === selected) return;
  selected = group;
  for (const watch of watchers) watch(group);
}

// -- tooltip ------------------------------------------------------------------------------------------------

const tip = $("tip");
function showTip(x, y, ...content) {
  put(tip, ...content);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = x + 14 + width > innerWidth - 6 ? Math.max(6, x - width - 14) : x + 14;
  const top = y + 16 + height > innerHeight - 6 ? Math.max(6, y - height - 12) : y + 16;
  tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
}
const hideTip = () => { tip.hidden = true; };
// Show something while a mouse is over a node, or once it is tapped.
function hover(node, show, leave) {
  const left = () => { hideTip(); if (leave) leave(); };
  node.addEventListener("pointermove", show);
  node.addEventListener("pointerdown", show);
  node.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") left(); });
  return node;
}
addEventListener("pointerdown", hideTip, { capture: true });
const rows = (pairs) => el("dl", {},
  pairs.filter(Boolean).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
addEventListener("scroll", hideTip, { passive: true });
