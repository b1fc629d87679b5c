// The front: plans by two of their costs, the least of each figure by buffer, and all plans in a table.

const P = D.points.map(
  ([buffer, rows, columns, dram, cycles, energy, area, groups, found, best, gap, dominated, cells]) =>
  ({ buffer, rows, columns, dram, cycles, energy, area, groups, found, best, gap, dominated, cells }));
const million = (value) => `${fixed(value / 1e6, 3)}\u00a0M`;
const COSTS = {
  bytes: { of: (p) => p.dram, name: "DRAM bytes", shown: size, binary: true },
  cycles: { of: (p) => p.cycles, name: "cycles", shown: million },
  energy: { of: (p) => p.energy, name: "energy", shown: joules },
  buffer: { of: (p) => p.buffer, name: "buffer", shown: size, log: true },
  area: { of: (p) => p.area, name: "area, LUT equivalents", shown: (value) => metric(value, ["", "k", "M"]) },
};
const distinct = (values) => [...new Set(values)];
const BUFFERS = distinct(P.map((p) => p.buffer)).sort((a, b) => a - b);
const ARRAYS = distinct(P.map((p) => `${p.rows} × ${p.columns}`));
const array = (p) => ARRAYS.indexOf(`${p.rows} × ${p.columns}`);
const colour = (k) => `var(--l${k % 8})`;
const proof = (p) => (p.gap === null ? "nothing proven"
  : p.gap === 0 ? "optimal" : `at most ${fixed(100 * p.gap, 2)} % above`);
const least = (p) => (p.best.length ? `least ${p.best.join(", ")}` : "");
const how = (p) => (p.found === "sampled"
  ? ["sampled", least(p)].filter(Boolean).join(", ") : least(p) || "corner");
// Of round numbers.
const unit = (cost, span) => (cost.binary
  ? [1 << 20, 1 << 10, 1].find((one) => span >= 2 * one || one === 1) : 1);

function tell(event, p) {
  showTip(event.clientX, event.clientY, el("strong", {}, `${size(p.buffer)}, ${p.rows} × ${p.columns} MACs`),
    rows([
      ["DRAM", bytes(p.dram)], ["cycles", count(p.cycles)], ["energy", joules(p.energy)],
      ["area, an estimate", `${count(p.area)} LUT eq.`],
      ["LUT, FF", p.cells.slice(0, 2).map(count).join(", ")],
      ["DSP, RAM", p.cells.slice(2).map(count).join(", ")],
      ["groups", count(p.groups)], ["found", how(p)], ["proof", proof(p)],
      p.dominated ? ["", "dominated"] : null]));
}

// A mark of a plan: circle, square, triangle, diamond by its array.
function mark(p, x, y, r) {
  const shapes = [
    () => svg("circle", { cx: x, cy: y, r }),
    () => svg("rect", { x: x - r, y: y - r, width: 2 * r, height: 2 * r }),
    () => svg("path", { d: `M${x} ${y - 1.2 * r}L${x + 1.15 * r} ${y + 0.9 * r}H${x - 1.15 * r}Z` }),
    () => svg("path",
      { d: `M${x} ${y - 1.3 * r}L${x + 1.3 * r} ${y}L${x} ${y + 1.3 * r}L${x - 1.3 * r} ${y}Z` }),
  ];
  const shape = shapes[array(p) % shapes.length]();
  const ink = colour(BUFFERS.indexOf(p.buffer));
  return fill(shape, {
    style: { fill: p.found === "exact" ? ink : "var(--panel)", stroke: ink, "stroke-width": "1.6",
      opacity: p.dominated ? 0.35 : 1 } }, []);
}

// -- two costs ----------------------------------------------------------------------------------------------

// Where values stand between two pixels, and round numbers along them.
function scale(cost, from, to) {
  const values = P.map(cost.of), log = cost.log;
  const into = (value) => (log ? Math.log2(value) : value);
  let [low, high] = [Math.min(...values.map(into)), Math.max(...values.map(into))];
  const pad = (high - low || Math.abs(high) || 1) * 0.06;
  [low, high] = [low - pad, high + pad];
  const at = (value) => from + ((to - from) * (into(value) - low)) / (high - low);
  const one = unit(cost, high - low);
  const step = one * ticks((high - low) / one, Math.abs(to - from) / 90)[1] || high - low;
  const first = Math.ceil(low / step);
  const marks = log ? BUFFERS
    : Array.from({ length: Math.max(Math.floor(high / step) - first + 1, 0) }, (_, k) => (first + k) * step);
  return { at, marks };
}

const choices = Object.keys(COSTS);
const [across, up] = [$("across"), $("up")];
for (const [select, start] of [[across, "bytes"], [up, "cycles"]]) {
  put(select,
    ...choices.map((name) => el("option", { value: name, selected: name === start }, COSTS[name].name)));
  select.addEventListener("change", plans);
}

function plans() {
  const chart = $("graph");
  const width = Math.max(Math.round(chart.parentElement.clientWidth - 32), 260),
    height = width < 560 ? 340 : 430;
  const left = 76, right = 14, bottom = 34, above = 12;
  fill(chart, { viewBox: `0 0 ${width} ${height}`, width, height }, []);
  const [h, v] = [COSTS[across.value], COSTS[up.value]];
  const x = scale(h, left, width - right), y = scale(v, height - bottom, above);
  const axis = svg("g", { class: "axis" },
    x.marks.map((value) => [svg("line", { x1: x.at(value), x2: x.at(value), y1: above, y2: height - bottom }),
      svg("text", { x: x.at(value), y: height - bottom + 15, "text-anchor": "middle" }, h.shown(value))]),
    y.marks.map((value) => [svg("line", { x1: left, x2: width - right, y1: y.at(value), y2: y.at(value) }),
      svg("text", { x: left - 7, y: y.at(value) + 4, "text-anchor": "end" }, v.shown(value))]),
    svg("text", { x: width - right, y: height - 3, "text-anchor": "end" }, `${h.name} →`),
    svg("text", { x: left, y: above - 2 }, `↑ ${v.name}`));
  const dots = P.slice().sort((a, b) => (a.found === "sampled") - (b.found === "sampled") || 0).reverse()
    .map((p) => hover(mark(p, x.at(h.of(p)), y.at(v.of(p)), 4.5), (event) => tell(event, p)));
  put(chart, axis, ...dots);
}

function legend() {
  const sign = (node) => svg("svg", { width: 14, height: 12, viewBox: "0 0 14 12", class: "sign" }, node);
  const some = { found: "exact", dominated: false };
  put($("legend"),
    ...BUFFERS.map((buffer) => el("span", {},
      sign(mark({ ...P.find((p) => p.buffer === buffer), ...some }, 7, 6, 4)), size(buffer))),
    ...(ARRAYS.length > 1 ? ARRAYS.map((name, k) => {
      const p = P.find((one) => array(one) === k);
      return el("span", {},
        sign(fill(mark({ ...p, ...some }, 7, 6, 4), { style: { fill: "none", stroke: "var(--ink-2)" } }, [])),
        `${name} MACs`);
    }) : []));
}

// -- the least by buffer ------------------------------------------------------------------------------------

function curves() {
  const names = Object.keys(D.curves);
  const holder = $("curves"), room = Math.max(holder.clientWidth, 260);
  const each = room < 720 ? room : Math.floor(room / Math.max(names.length, 1)) - 18;
  put(holder, ...names.map((name) => curve(name, each)));
}

function curve(name, width) {
  const cost = COSTS[name], lines = D.curves[name], height = 240, left = 66, right = 16, bottom = 34,
    above = 22;
  const sizes = distinct(lines.flatMap(([, , buffers]) => buffers)).sort((a, b) => a - b);
  const low = Math.log2(sizes[0]), high = Math.max(Math.log2(sizes[sizes.length - 1]), low + 1);
  const top = 1.05 * Math.max(...lines.flatMap(([, , , values]) => values));
  const x = (value) => left + ((width - left - right) * (Math.log2(value) - low)) / (high - low);
  const y = (value) => height - bottom - ((height - bottom - above) * value) / top;
  const every = Math.ceil(sizes.length / Math.max(Math.floor((width - left - right) / 62), 1));
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
    "aria-label": `Least ${cost.name} by buffer` },
    svg("g", { class: "axis" },
      ticks(top / unit(cost, top), 4).map((value) => value * unit(cost, top)).map((value) => [
        svg("line", { x1: left, x2: width - right, y1: y(value), y2: y(value) }),
        svg("text", { x: left - 7, y: y(value) + 4, "text-anchor": "end" }, cost.shown(value))]),
      sizes.filter((_, k) => k % every === 0).map((value) =>
        svg("text", { x: x(value), y: height - 14, "text-anchor": "middle" }, size(value)))),
    svg("text", { class: "mark-text", x: left, y: 12, style: { "font-weight": "600" } }, cost.name));
  lines.forEach(([rowCount, columnCount, buffers, values], k) => {
    const ink = `var(--class-${k % 5})`;
    picture.append(svg("path", {
      d: buffers.map((buffer, n) => `${n ? "L" : "M"}${x(buffer)} ${y(values[n])}`).join(""),
      style: { fill: "none", stroke: ink, "stroke-width": "2" } }));
    buffers.forEach((buffer, n) => {
      const at = { cx: x(buffer), cy: y(values[n]) };
      const ring = D.knees.some((knee) => knee.figure === name && knee.buffer_bytes === buffer &&
        knee.mac_rows === rowCount && knee.mac_columns === columnCount);
      if (ring)
        picture.append(
          svg("circle", { ...at, r: 7.5, style: { fill: "none", stroke: ink, "stroke-width": "1.5" } }));
      const show = (event) => showTip(event.clientX, event.clientY,
        el("strong", {}, `${size(buffer)}, ${rowCount} × ${columnCount} MACs`),
        rows([[`least ${cost.name}`, name === "energy" ? joules(values[n]) : count(values[n])],
          ring ? ["", "knee"] : null]));
      picture.append(svg("circle", { ...at, r: 3.5, style: { fill: ink } }),
        hover(svg("circle", { class: "hit", ...at, r: 9 }), show));
    });
  });
  const names = lines.length > 1
    ? lines.map(([r, c], k) => el("span", {}, el("i", { class: `swatch c${k % 5}` }), `${r} × ${c} MACs`))
    : [];
  return el("div", {}, picture, el("div", { class: "chart-legend" }, names));
}

// -- the table ----------------------------------------------------------------------------------------------

const TABLE = [
  { name: "buffer", of: (p) => p.buffer, cell: (p) => size(p.buffer) },
  { name: "MACs", of: (p) => p.rows * p.columns, cell: (p) => `${p.rows} × ${p.columns}` },
  { name: "DRAM bytes", of: (p) => p.dram },
  { name: "cycles", of: (p) => p.cycles },
  { name: "energy", of: (p) => p.energy, cell: (p) => joules(p.energy) },
  { name: "LUT eq.", of: (p) => p.area },
  { name: "groups", of: (p) => p.groups },
  { name: "found", of: how, cell: how, text: true },
  { name: "proof", of: (p) => (p.gap === null ? Infinity : p.gap), cell: proof, text: true },
];

function table() {
  const body = el("tbody");
  let column = -1, down = false;
  const heads = TABLE.map((entry, k) => el("th", { scope: "col", class: entry.text ? "" : "num" },
    el("button", { type: "button", onclick: () => order(k) }, entry.name)));
  function order(k) {
    [column, down] = [k, k === column && !down];
    const of = TABLE[k].of;
    const sorted = P.slice().sort((a, b) => (of(a) < of(b) ? -1 : of(a) > of(b) ? 1 : 0));
    list(down ? sorted.reverse() : sorted);
    heads.forEach((head, n) => (n === k
      ? head.setAttribute("aria-sort", down ? "descending" : "ascending")
      : head.removeAttribute("aria-sort")));
  }
  const list = (some) => put(body, ...some.map((p) => el("tr", { class: p.dominated ? "muted" : "" },
    TABLE.map((entry) => el("td", { class: entry.text ? "" : "num" },
      entry.cell ? entry.cell(p) : count(entry.of(p)))))));
  list(P);
  put($("rows"), el("table", {}, el("thead", {}, el("tr", {}, heads)), body));
}

if (P.length) {
  plans();
  legend();
  curves();
}
table();
let seen = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === seen || !P.length) return;
  seen = innerWidth;
  plans();
  curves();
});
document.documentElement.dataset.ready = "yes";
