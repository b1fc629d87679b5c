// The network: drawn from the points that were worked out beforehand, moved and scaled by one transform.

const graph = $("graph");
const NODE = { width: 26, heavy: 14, light: 9 };
const FOOT = 42; // for the buttons below the drawing
const NEAR = 1.3, CLOSE = 3.1, MOST = 9; // scales from which kinds and names are written, and the largest one
const first = D.inputs, last = D.inputs + D.operators;
const isOperator = (node) => node >= first && node < last;
const groupOf = (node) => (isOperator(node) ? D.ops.group[node - first] : -1);
const nodeCount = last + D.sinks.length;
const before = Array.from({ length: nodeCount }, () => []);
const behind = Array.from({ length: nodeCount }, () => []);
for (const [source, target] of D.edges) {
  behind[source].push(target);
  before[target].push(source);
}

let drawing = null; // which of the drawings is shown
let stageMarks = [];
let stage, nodes, halos, view = { k: 1, x: 0, y: 0 }, focused = -1, engaged = false;

function point(node) {
  return [drawing.nodes[2 * node], drawing.nodes[2 * node + 1]];
}

// Straight along lanes, an S from one lane to another, rounded corners where an edge returns to the next
// line.
function path(route) {
  let d = `M${route[0]} ${route[1]}`;
  for (let k = 2; k < route.length; k += 2) {
    const [x0, y0, x1, y1, x2, y2] = route.slice(k - 2, k + 4);
    if (x1 !== x0 && y1 !== y0) {
      const middle = (x0 + x1) / 2;
      d += `C${middle} ${y0} ${middle} ${y1} ${x1} ${y1}`;
    } else if (x2 !== undefined && (x0 === x1) !== (x1 === x2) && (x1 === x2 || y1 === y2)) {
      const r = Math.min(5, Math.hypot(x1 - x0, y1 - y0) / 2, Math.hypot(x2 - x1, y2 - y1) / 2);
      d += `L${x1 - r * Math.sign(x1 - x0)} ${y1 - r * Math.sign(y1 - y0)}`;
      d += `Q${x1} ${y1} ${x1 + r * Math.sign(x2 - x1)} ${y1 + r * Math.sign(y2 - y1)}`;
    } else d += `L${x1} ${y1}`;
  }
  return d;
}

function draw() {
  drawing = graph.clientWidth < 620 ? D.drawings.tall : D.drawings.wide;
  const largest = Math.max(1, ...D.maps.bytes);
  const kept = new Map(); // group -> path
  const crossing = new Map(); // map -> path
  D.edges.forEach(([source, target, map], edge) => {
    const d = path(drawing.routes[edge]);
    const g = groupOf(source);
    if (g >= 0 && g === groupOf(target)) kept.set(g, (kept.get(g) || "") + d);
    else {
      crossing.set(map, (crossing.get(map) || "") + d);
    }
  });
  const lines = svg("g");
  for (const [map, d] of crossing) {
    const line = svg("path", { class: "crossing", d,
      style: { "--wide": (0.8 + 2.4 * Math.sqrt(D.maps.bytes[map] / largest)).toFixed(2) } });
    lines.append(svg("path", { class: "grip", d, "data-map": map }), line);
  }
  const bands = svg("g");
  for (const [g, d] of kept) bands.append(svg("path", { class: `kept s${D.colours[g]}`, d }));
  halos = kept;
  const boxes = svg("g");
  nodes = Array.from({ length: nodeCount }, (_, node) => boxes.appendChild(box(node)));
  stageMarks = drawing.stages.map(([name, left, right, top]) => ({
    room: right - left,
    text: svg("text", { x: left, y: top - 7.5 }, name),
    line: svg("path", { d: `M${left} ${top - 4}v-2H${right}v2` }) }));
  const tags = svg("g", { "aria-hidden": "true" });
  D.groups.forEach((group, g) => {
    const [x, y] = point(first + group.ops[0]);
    tags.append(svg("text", { class: "tag", x: x - NODE.width / 2, y: y - 9 }, String(g)));
  });
  stage = svg("g", {}, lines, svg("g", { id: "halo" }), bands, boxes, tags,
    svg("g", { class: "stages" }, stageMarks.map((mark) => [mark.line, mark.text])));
  put(graph, stage);
  lit(selected);
  everything();
}

function box(node) {
  const [x, y] = point(node);
  const heavy = isOperator(node) && D.ops.macs[node - first] > 0;
  const height = heavy ? NODE.heavy : NODE.light;
  const g = groupOf(node);
  const outer = svg("g", { class: isOperator(node) ? "node" : "node end", "data-node": node });
  outer.append(
    svg("rect", {
      class: g >= 0 ? `f${D.colours[g]}` : null, style: g >= 0 ? hot(node - first) : {},
      x: x - NODE.width / 2, y: y - height / 2, width: NODE.width, height,
      rx: isOperator(node) ? 2.5 : height / 2,
    }),
    svg("text", { class: "kind", x, y: y + 1.8 }, shorten(kindOf(node), 9)),
    svg("text", { class: "name", x, y: y + height / 2 + 3.6 }, shorten(nameOf(node), 17)),
  );
  return outer;
}

const kindOf = (node) => (isOperator(node) ? D.ops.kind[node - first] : node < first ? "input" : "output");
function nameOf(node) {
  if (isOperator(node)) return opName(node - first);
  return D.maps.name[node < first ? D.sources[node] : D.sinks[node - last]];
}

// -- heat: operators coloured by what they move, take or fill, or by their group ----------------------------

const HEATS = {
  bytes: { values: D.heat.bytes, what: "DRAM bytes that an operator's loads and stores move", end: bytes },
  cycles: { values: D.heat.cycles, what: "cycles that it computes, by the model",
    end: (value) => `${count(value)} cycles` },
  fill: { values: D.heat.fill, what: "bytes in the buffer while it computes",
    end: (value) => andFilled(value), linear: true },
  groups: { what: "a colour for each group" },
};
let heat = "bytes";

function hottest() {
  const { values, linear } = HEATS[heat];
  return Math.max(1, linear && BUFFER < Infinity ? BUFFER : 0, ...values);
}

// Style of an operator's box. Bytes and cycles spread over orders of magnitude: the colour follows their
// square root.
function hot(i) {
  const { values, linear } = HEATS[heat];
  if (!values) return {};
  const share = values[i] / hottest();
  return { fill: `color-mix(in oklab, var(--hot) ${
    (100 * (linear ? share : Math.sqrt(share))).toFixed(1)}%, var(--cold))` };
}

function heatModes() {
  const button = (name) => el("button", { type: "button", "aria-pressed": String(name === heat),
    onclick: () => { heat = name; heatModes(); recolour(); } }, name);
  const { values, what, end, linear } = HEATS[heat];
  put($("heat"), el("span", { class: "muted" }, "colour"), Object.keys(HEATS).map(button),
    el("span", { class: "heat-legend" }, values
      ? ["0", el("i", { class: "ramp hot", "aria-hidden": "true" }), end(hottest()),
        el("span", { class: "muted" }, `${what}${linear ? "" : "; square root"}`)]
      : el("span", { class: "muted" }, what)));
}

function recolour() {
  nodes.forEach((node, k) => {
    if (!isOperator(k)) return;
    const box = node.querySelector("rect");
    box.style.fill = "";
    for (const [name, value] of Object.entries(hot(k - first))) box.style.setProperty(name, value);
  });
}

// -- what a node is -----------------------------------------------------------------------------------------

function about(node) {
  if (!isOperator(node)) {
    const map = node < first ? D.sources[node] : D.sinks[node - last];
    return [["shape", shape(D.maps.shape[map])], ["bytes", bytes(D.maps.bytes[map])]];
  }
  const i = node - first, g = D.ops.group[i];
  const results = D.ops.results[i].map((map) =>
    [D.ops.results[i].length > 1 ? shorten(D.maps.name[map], 24) : "result",
    `${shape(D.maps.shape[map])}, ${bytes(D.maps.bytes[map])}`]);
  return [
    ...results.slice(0, 6),
    D.ops.weights[i] && ["weights", bytes(D.ops.weights[i])],
    D.ops.macs[i] && ["work", macs(D.ops.macs[i])],
    g >= 0 && ["moves in this plan", bytes(D.heat.bytes[i])],
    g >= 0 && ["computes, model", `${count(D.heat.cycles[i])} cycles`],
    g >= 0 && ["buffer meanwhile", andFilled(D.heat.fill[i])],
    g >= 0 && ["group", `${g}, ${D.groups[g].mode}, moves ${bytes(total(D.groups[g]))}`],
  ].filter(Boolean);
}

function tell(node, x, y) {
  const origin = isOperator(node) ? from(node - first) : "";
  showTip(x, y, el("div", { class: "mono" }, nameOf(node)), el("div", { class: "muted" }, kindOf(node)),
    origin && el("div", { class: "scope" }, origin), rows(about(node)));
}

function tellMap(map, x, y) {
  const writer = D.edges.find((edge) => edge[2] === map)[0];
  const readers = [...new Set(D.edges.filter((edge) => edge[2] === map)
    .map((edge) => (isOperator(edge[1]) ? groupOf(edge[1]) : "output")))];
  const listed = readers.slice(0, 8).join(", ") +
    (readers.length > 8 ? ` and ${readers.length - 8} more` : "");
  showTip(x, y, el("div", { class: "mono" }, D.maps.name[map]), el("div", { class: "muted" }, "visits DRAM"),
    rows([["shape", shape(D.maps.shape[map])], ["bytes", bytes(D.maps.bytes[map])],
      ["made by", isOperator(writer) ? `group ${groupOf(writer)}` : "network input"],
      ["read by", /^\d/.test(listed) ? `group ${listed}` : listed]]));
}

// -- view ---------------------------------------------------------------------------------------------------

function apply() {
  stage.setAttribute("transform",
    `translate(${view.x.toFixed(2)} ${view.y.toFixed(2)}) scale(${view.k.toFixed(4)})`);
  graph.style.setProperty("--thin", Math.min(Math.max(view.k, 0.4), 1.4).toFixed(2));
  const letters = Math.min(10.5 / view.k, 13); // units: as large on the screen whatever the scale
  graph.style.setProperty("--letters", `${letters.toFixed(2)}px`);
  for (const { room, text } of stageMarks)
    text.classList.toggle("cut", text.textContent.length * letters * 0.58 > room + 4);
  graph.classList.toggle("near", view.k >= NEAR);
  graph.classList.toggle("close", view.k >= CLOSE);
}

function least() {
  const [width, height] = drawing.size;
  return Math.min(graph.clientWidth / (width + 16), (graph.clientHeight - FOOT) / (height + 16));
}

function everything() {
  const [width, height] = drawing.size;
  const k = Math.min(least(), 2.2);
  view = { k, x: (graph.clientWidth - width * k) / 2,
    y: Math.max((graph.clientHeight - FOOT - height * k) / 2, 10) };
  apply();
}

function zoom(factor, x = graph.clientWidth / 2, y = graph.clientHeight / 2) {
  const k = Math.min(Math.max(view.k * factor, Math.min(least(), 1) * 0.8), MOST);
  view = { k, x: x - ((x - view.x) * k) / view.k, y: y - ((y - view.y) * k) / view.k };
  apply();
}

function pan(dx, dy) {
  const [width, height] = drawing.size, keep = 60; // some of the drawing stays in sight
  view.x = Math.min(Math.max(view.x + dx, keep - width * view.k), graph.clientWidth - keep);
  view.y = Math.min(Math.max(view.y + dy, keep - height * view.k), graph.clientHeight - keep);
  apply();
}

function centre(x, y, k) {
  view = { k, x: graph.clientWidth / 2 - x * k, y: graph.clientHeight / 2 - y * k };
  apply();
}

function extent(group) {
  const points = D.groups[group].ops.map((i) => point(first + i));
  const xs = points.map((p) => p[0]), ys = points.map((p) => p[1]);
  return [Math.min(...xs) - 20, Math.min(...ys) - 14, Math.max(...xs) + 20, Math.max(...ys) + 14];
}

// Bring a group into sight, without a change of scale.
function reveal(group) {
  const [x0, y0, x1, y1] = extent(group);
  const [left, top, right, bottom] =
    [x0 * view.k + view.x, y0 * view.k + view.y, x1 * view.k + view.x, y1 * view.k + view.y];
  if (left < 0 || top < 0 || right > graph.clientWidth || bottom > graph.clientHeight)
    centre((x0 + x1) / 2, (y0 + y1) / 2, view.k);
}

function closeUp(group) {
  const [x0, y0, x1, y1] = extent(group);
  const k = Math.min(graph.clientWidth / (x1 - x0 + 30), graph.clientHeight / (y1 - y0 + 30), 4);
  centre((x0 + x1) / 2, (y0 + y1) / 2, Math.max(k, least()));
}

function lit(group) {
  if (group < 0 || D.groups.length === 1) return; // then there is nothing to tell apart
  nodes.forEach((node, k) => node.classList.toggle("chosen", groupOf(k) === group));
  const around = D.groups[group].ops.map((i) => point(first + i)).map(([x, y]) => `M${x - 9} ${y}H${x + 9}`)
    .join("");
  const touching = D.edges.map(([source, target], k) => [groupOf(source), groupOf(target), k])
    .filter(([a, b]) => a !== b && (a === group || b === group));
  put($("halo"), 
    svg("path", { class: "halo", d: around + (halos.get(group) || "") }),
    svg("path", { class: "chosen-line",
      d: touching.map(([, , k]) => path(drawing.routes[k])).join("") || "M0 0" }),
  );
}

watchers.push((group) => {
  lit(group);
  reveal(group);
});

// -- pointer ------------------------------------------------------------------------------------------------

const pointers = new Map();
let moved = 0;

function place(event) {
  const bounds = graph.getBoundingClientRect();
  return [event.clientX - bounds.left, event.clientY - bounds.top];
}
const nodeAt = (target) => {
  const found = target.closest?.(".node");
  return found ? Number(found.dataset.node) : -1;
};

graph.addEventListener("pointerdown", (event) => {
  if (event.button > 0) return;
  if (!pointers.size) moved = 0;
  pointers.set(event.pointerId, place(event));
  engaged = true;
});
graph.addEventListener("pointermove", (event) => {
  const old = pointers.get(event.pointerId), now = place(event);
  if (!old) {
    const node = nodeAt(event.target);
    const map = event.target.dataset?.map;
    if (map !== undefined && event.pointerType === "mouse")
      tellMap(Number(map), event.clientX, event.clientY);
    else if (node < 0) hideTip();
    else if (event.pointerType === "mouse") tell(node, event.clientX, event.clientY);
    return;
  }
  const others = [...pointers.entries()].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
  moved += Math.hypot(now[0] - old[0], now[1] - old[1]);
  pointers.set(event.pointerId, now);
  if (moved < 5) return;
  if (!graph.hasPointerCapture(event.pointerId)) graph.setPointerCapture(event.pointerId);
  graph.classList.add("dragging");
  hideTip();
  if (!others.length) return pan(now[0] - old[0], now[1] - old[1]);
  const [fixedX, fixedY] = others[0];
  const apart = (at) => Math.max(Math.hypot(at[0] - fixedX, at[1] - fixedY), 1);
  zoom(apart(now) / apart(old), (now[0] + fixedX) / 2, (now[1] + fixedY) / 2);
  pan((now[0] - old[0]) / 2, (now[1] - old[1]) / 2);
});
for (const kind of ["pointerup", "pointercancel"]) {
  graph.addEventListener(kind, (event) => {
    const pressed = pointers.delete(event.pointerId);
    if (!pointers.size) graph.classList.remove("dragging");
    const node = nodeAt(event.target);
    if (!pressed || moved >= 5 || kind === "pointercancel" || node < 0) return;
    if (groupOf(node) >= 0) select(groupOf(node));
    focusOn(node, false);
    if (event.pointerType !== "mouse") tell(node, event.clientX, event.clientY);
  });
}
graph.addEventListener("pointerleave", hideTip);

let hintTimer = 0;
function hint(text) {
  $("hint").textContent = text;
  $("hint").classList.add("shown");
  clearTimeout(hintTimer);
  hintTimer = setTimeout(() => $("hint").classList.remove("shown"), 1600);
}

// The wheel belongs to the page until the drawing has been clicked or focused; with Ctrl it always zooms.
graph.addEventListener("wheel", (event) => {
  if (!engaged && !event.ctrlKey && !event.metaKey)
    return hint("click the drawing first, or hold Ctrl, to zoom with the wheel");
  event.preventDefault();
  zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016) * (event.ctrlKey ? 3 : 1)),
    ...place(event));
}, { passive: false });
document.addEventListener("pointerdown", (event) => {
  if (!graph.contains(event.target)) engaged = false;
});
graph.addEventListener("focus", () => { engaged = true; });
graph.addEventListener("blur", () => { engaged = false; });

$("zoom-in").addEventListener("click", () => zoom(1.5));
$("zoom-out").addEventListener("click", () => zoom(1 / 1.5));
$("zoom-fit").addEventListener("click", everything);
$("zoom-group").addEventListener("click", () => closeUp(selected));

// -- keyboard -----------------------------------------------------------------------------------------------

function focusOn(node, aloud = true) {
  if (focused >= 0) nodes[focused].classList.remove("focused");
  focused = node;
  nodes[node].classList.add("focused");
  if (!aloud) return;
  const [x, y] = point(node);
  const [left, top] = [x * view.k + view.x, y * view.k + view.y];
  if (left < 30 || top < 30 || left > graph.clientWidth - 30 || top > graph.clientHeight - 30)
    centre(x, y, view.k);
  const bounds = nodes[node].getBoundingClientRect();
  tell(node, bounds.right - 8, bounds.bottom - 10);
  $("said").textContent =
    `${kindOf(node)} ${nameOf(node)}; ${about(node).map((pair) => pair.join(" ")).join("; ")}`;
}

// The nearest node upwards or downwards.
function beside(node, direction) {
  const [x, y] = point(node);
  let best = -1, distance = Infinity;
  for (let other = 0; other < nodeCount; other++) {
    const [ox, oy] = point(other);
    const far = Math.abs(oy - y) + 2 * Math.abs(ox - x);
    if ((oy - y) * direction > 4 && far < distance) [best, distance] = [other, far];
  }
  return best;
}

const near = (options, node) => options.slice()
  .sort((a, b) => Math.abs(point(a)[1] - point(node)[1]) - Math.abs(point(b)[1] - point(node)[1]))[0];

graph.addEventListener("keydown", (event) => {
  const steps = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60],
    ArrowDown: [0, -60] }[event.key];
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (steps && event.shiftKey) pan(...steps);
  else if (steps) {
    const from = focused >= 0 ? focused : selected >= 0 ? first + D.groups[selected].ops[0] : 0;
    const next = focused < 0 ? from
      : event.key === "ArrowRight" ? near(behind[from], from)
      : event.key === "ArrowLeft" ? near(before[from], from)
      : beside(from, event.key === "ArrowDown" ? 1 : -1);
    if (next !== undefined && next >= 0) focusOn(next);
  } else if (event.key === "+" || event.key === "=") zoom(1.3);
  else if (event.key === "-" || event.key === "−") zoom(1 / 1.3);
  else if (event.key === "0") everything();
  else if (event.key === "g") closeUp(selected);
  else if ((event.key === "Enter" || event.key === " ") && focused >= 0) select(groupOf(focused));
  else if (event.key === "Escape") hideTip();
  else return;
  event.preventDefault();
});

function find(operator) {
  select(D.ops.group[operator]);
  centre(...point(first + operator), Math.max(view.k, 2));
  focusOn(first + operator);
}

let drawnWidth = 0;
new ResizeObserver(() => {
  const width = graph.clientWidth;
  if (!drawing || Math.abs(width - drawnWidth) < 2) return;
  drawnWidth = width;
  if (drawing !== (width < 620 ? D.drawings.tall : D.drawings.wide)) draw();
  else everything();
}).observe(graph);
