// Bars, areas and steps.

const chart = (width, height, label) => svg("svg",
  { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });

// Horizontal lines with their sizes on the left.
function levels(x0, x1, y, top, about = 4) {
  const unit = top >= 1 << 20 ? 1 << 20 : top >= 1 << 10 ? 1 << 10 : 1;
  const name = { [1 << 20]: "MiB", [1 << 10]: "KiB", 1: "B" }[unit];
  const found = ticks(top / unit, about);
  return svg("g", { class: "axis" }, found.map((value, k) => [
    svg("line", { x1: x0, x2: x1, y1: y(value * unit), y2: y(value * unit),
      class: value === 0 ? "base" : null }),
    svg("text", { x: x0 - 7, y: y(value * unit) + 4, "text-anchor": "end" },
      `${trimmed(value)}${k === found.length - 1 ? ` ${name}` : ""}`),
  ]));
}

// -- the plan among its baselines ---------------------------------------------------------------------------

function compare() {
  const top = Math.max(...D.baselines.map((b) => b.bytes));
  const bound = D.totals.lower_bound_bytes;
  const row = (cls, ...cells) => el("div", { role: "row", class: cls }, cells);
  const cell = (cls, ...content) => el("span", { role: "cell", class: cls }, ...content);
  const head = row("head-row", ["", "", "DRAM bytes", "× bound"].map((text, k) =>
    el("span", { role: "columnheader", class: k > 1 ? "num" : "" }, text)));
  put($("compare"), head, ...D.baselines.map((b) => {
    const parts = b.by && sum(b.by) ? b.by.map((value, k) => [value, `c${k}`]) : [[b.bytes, "whole"]];
    const bars = parts.filter(([value]) => value)
      .map(([value, cls]) => el("i", { class: cls, style: { width: `${(100 * value) / top}%` } }));
    return row(`${b.plan ? "plan" : ""} ${b.outside ? "faded" : ""}`,
      cell("", b.name + (b.outside ? " *" : "")), cell("track", bars),
      cell("num", count(b.bytes)), cell("num", bound ? fixed(b.bytes / bound, 3) : "–"));
  }));
  if (D.baselines.some((b) => b.outside)) $("compare").append(row("foot-row", cell("", D.outside)));
  const used = CLASSES.map((name, k) => [name, k]).filter(([, k]) => D.baselines.some((b) => b.by?.[k]));
  put($("classes"), ...used.map(([name, k]) => el("span", {}, el("i", { class: `c${k}` }), name)));
}

// -- traffic by group ---------------------------------------------------------------------------------------

let barsOf = null;
function bars() {
  const height = 230, left = 58, right = 12, bottom = 26, topPad = 14;
  const each = Math.max(4, (($("bars").clientWidth || 900) - left - right) / D.groups.length);
  const width = Math.round(left + right + each * D.groups.length);
  const top = Math.max(1, ...D.groups.map(total));
  const y = (value) => height - bottom - ((height - bottom - topPad) * value) / top;
  const picture = chart(width, height,
    "DRAM bytes of each group by class, in execution order; the table below has the figures");
  picture.append(levels(left, width - right, y, top));
  const thick = Math.max(each - (each > 7 ? 2 : 1), 2);
  D.groups.forEach((group, g) => {
    const x = left + each * g + (each - thick) / 2;
    let at = 0;
    group.by.forEach((value, k) => {
      if (value)
        picture.append(svg("rect", { class: `c${k}`, x, width: thick, y: y(at + value),
          height: Math.max(y(at) - y(at + value), 0.4) }));
      at += value;
    });
  });
  const mark = svg("rect", { class: "chosen-bar", y: topPad - 8, height: height - bottom - topPad + 8,
    width: Math.max(each, 6) });
  picture.append(mark);
  const every = Math.max(1, Math.ceil(46 / each / 5) * 5);
  const labels = svg("g", { class: "axis" });
  for (let g = 0; g < D.groups.length; g += every)
    labels.append(
      svg("text", { x: left + each * (g + 0.5), y: height - 8, "text-anchor": "middle" }, String(g)));
  picture.append(labels);
  D.groups.forEach((group, g) => {
    const hit = svg("rect", { class: "hit", x: left + each * g, width: each, y: topPad - 8,
      height: height - bottom - topPad + 8, onclick: () => select(g) });
    picture.append(hover(hit, (event) => showTip(event.clientX, event.clientY, ...groupTip(g))));
  });
  put($("bars"), picture);
  barsOf = (g) => {
    mark.setAttribute("x", left + each * g + (each - Math.max(each, 6)) / 2);
    const scroller = $("bars");
    const x = left + each * g;
    if (x < scroller.scrollLeft || x > scroller.scrollLeft + scroller.clientWidth)
      scroller.scrollLeft = x - scroller.clientWidth / 2;
  };
  if (selected >= 0) barsOf(selected);
}
watchers.push((group) => barsOf && barsOf(group));

function groupTip(g) {
  const group = D.groups[g];
  return [
    el("div", {}, el("strong", {}, `Group ${g} `),
      el("span", { class: "muted" }, `${group.mode}, ${count(group.ops.length)} operators`)),
    group.scope && el("div", { class: "scope" }, group.scope),
    rows([...CLASSES.map((name, k) => group.by[k] && [name, bytes(group.by[k])]),
      ["all", bytes(total(group))],
      ["unfused", `${bytes(unfused(group))}, ${times(unfused(group), total(group))}`]]),
  ];
}

// -- the buffer while a group runs --------------------------------------------------------------------------

const MAPS_SHOWN = 8;

// Layers of the picture: maps one by one (small ones together), all weights, all partial sums.
function layersOf(filling) {
  const slots = (k, at) => (Array.isArray(filling.slots[k]) ? filling.slots[k][at] : filling.slots[k]);
  const layers = [];
  const ofPurpose = (purpose) => filling.places.map((p, k) => [p, k]).filter(([p]) => p[1] === purpose);
  const add = (name, members, colour) => {
    if (members.length)
      layers.push({ name, colour, at: (s) => sum(members.map(([p, k]) => slots(k, s) * p[4])),
        places: members.map(([, k]) => k) });
  };
  if (!D.weight_buffer)
    add(`weights of ${count(ofPurpose("weight").length)} places`, ofPurpose("weight"), "var(--class-2)");
  add("partial sums", ofPurpose("sum"), "var(--class-4)");
  const maps = ofPurpose("map").sort(([a, i], [b, j]) => filling.most[j] * b[4] - filling.most[i] * a[4]);
  const named = maps.slice(0, maps.length > MAPS_SHOWN + 1 ? MAPS_SHOWN : maps.length)
    .sort(([, i], [, j]) => i - j);
  const hues = ["0", "4", "6", "2", "3", "5", "1", "7"];
  named.forEach((member, n) => add(member[0][0], [member], `var(--g${hues[n % hues.length]})`));
  add(`${maps.length - named.length} smaller maps`, maps.slice(named.length), "var(--line-strong)");
  return layers;
}

function doing(group, filling, s) {
  const [code, row] = filling.doing.slice(2 * s, 2 * s + 2);
  const k = Math.floor(code / 3);
  if (code % 3 === 0) return `computes ${opName(group.ops[k])}, row ${count(row)}`;
  if (k < 0) return "loads parameters";
  return `${code % 3 === 1 ? "loads" : "stores"} ${filling.places[k][0]}, ${
    filling.places[k][1] === "weight" ? "block" : "row"} ${count(row)}`;
}

function fillChart(g) {
  const group = D.groups[g], filling = D.fills[g], holder = $("fill");
  if (!filling.steps) return formulaChart(g);
  const layers = layersOf(filling);
  const width = Math.max(holder.clientWidth, 320), height = 270, left = 66, right = 14, bottom = 30,
    topPad = 20;
  const samples = filling.shown.length;
  const tops = layers.map((layer) => Array.from({ length: samples }, (_, s) => layer.at(s)));
  const small = filling.peak[0] < 0.4 * BUFFER; // then the buffer's own line is out of the picture
  const top = small ? 1.2 * filling.peak[0] : 1.04 * Math.max(BUFFER, filling.peak[0]);
  const x = (s) => left + ((width - left - right) * s) / samples;
  const y = (value) => height - bottom - ((height - bottom - topPad) * value) / top;
  const picture = chart(width, height,
    `Bytes in the buffer while group ${g} runs: at most ${ofBuffer(filling.peak[0])}`);
  picture.append(levels(left, width - right, y, top));
  const floor = new Array(samples).fill(0);
  layers.forEach((layer, n) => {
    let up = "", down = "";
    for (let s = 0; s < samples; s++) {
      const high = y(floor[s] + tops[n][s]).toFixed(1), low = y(floor[s]).toFixed(1);
      up += `${s ? "L" : "M"}${x(s).toFixed(1)} ${high}H${x(s + 1).toFixed(1)}`;
      down = `V${low}H${x(s).toFixed(1)}${down}`;
      floor[s] += tops[n][s];
    }
    picture.append(svg("path", { class: "area", d: `${up}${down}Z`, style: { fill: layer.colour } }));
  });
  if (!small)
    picture.append(
      svg("line", { class: "limit", x1: left, x2: width - right, y1: y(BUFFER), y2: y(BUFFER) }));
  const times = BUFFER < Infinity ? `, ${trimmed(BUFFER / filling.peak[0])} times the peak` : "";
  const limit = `buffer ${capacity(BUFFER)}${small ? `${times} ↑` : ""}`;
  picture.append(svg("text", { class: "mark-text", x: width - right, y: small ? topPad - 6 : y(BUFFER) - 5,
    "text-anchor": "end" }, limit));
  const peak = Math.max(0, filling.shown.indexOf(filling.peak[1]));
  picture.append(svg("circle", { class: "own", cx: x(peak + 0.5), cy: y(filling.peak[0]), r: 3.5 }));
  const axis = svg("g", { class: "axis" });
  for (const step of ticks(filling.steps, width > 600 ? 8 : 4)) {
    // There stands what is counted.
    if (((width - left - right) * (filling.steps - step)) / filling.steps < 44) continue;
    axis.append(svg("text", { x: left + ((width - left - right) * step) / filling.steps, y: height - 11,
      "text-anchor": "middle" }, count(step)));
  }
  axis.append(svg("text", { x: width - right, y: height - 11, "text-anchor": "end" }, "step"));
  const cursor = svg("rect", { class: "cursor", y: topPad, height: height - bottom - topPad,
    width: x(1) - x(0), visibility: "hidden" });
  const hit = svg("rect", { x: left, y: topPad, width: width - left - right, height: height - bottom - topPad,
    fill: "transparent" });
  const show = (event) => {
    const bounds = hit.getBoundingClientRect();
    const s = Math.min(samples - 1,
      Math.max(0, Math.floor(((event.clientX - bounds.left) / bounds.width) * samples)));
    cursor.setAttribute("x", x(s));
    cursor.setAttribute("visibility", "visible");
    const held = layers.map((layer, n) => tops[n][s] && [shorten(layer.name, 34), bytes(tops[n][s])])
      .filter(Boolean).reverse();
    showTip(event.clientX, event.clientY,
      el("div", {}, el("strong", {}, `Step ${count(filling.shown[s])} `),
        el("span", { class: "muted" }, doing(group, filling, s))),
      rows([...held, ["all", andFilled(floor[s])]]));
  };
  hover(hit, show, () => cursor.setAttribute("visibility", "hidden"));
  picture.append(axis, cursor, hit);
  const legend = el("div", { class: "chart-legend" },
    layers.map((layer) => el("span", {}, el("i", { class: "swatch", style: { background: layer.colour } }),
      shorten(layer.name, 40))));
  const weights = Math.max(0,
    ...filling.places.filter((p) => p[1] === "weight").map((p) => p[2] + p[3] * p[4]));
  const apart = D.weight_buffer > 0 && el("p", { class: "note" },
    `Weights lie in a buffer of their own: ${bytes(weights)} of ${bytes(D.weight_buffer)}.`);
  put(holder, picture, legend, apart);
}

// No steps: what the formula adds up, side by side.
function formulaChart(g) {
  const filling = D.fills[g], group = D.groups[g];
  const parts = (filling.rings || []).map(([name, n, size]) =>
    [`${count(n)} rows of ${name}`, size, "var(--class-0)"]);
  if (filling.weights && !D.weight_buffer) parts.push(["weights", filling.weights, "var(--class-2)"]);
  parts.sort((a, b) => b[1] - a[1]);
  const shown = parts.slice(0, 9);
  const rest = sum(parts.slice(9).map((part) => part[1]));
  if (rest) shown.push([`${parts.length - 9} more maps`, rest, "var(--line-strong)"]);
  const whole = BUFFER < Infinity ? BUFFER : sum(parts.map((part) => part[1]));
  const line = ([name, value, colour]) => el("div", { role: "row", class: "" },
    el("span", {}, shorten(name, 40)), el("span", { class: "track" },
      el("i", { style: { width: `${Math.min(100, (100 * value) / whole)}%`, background: colour } })),
    el("span", { class: "num" }, bytes(value)), el("span", { class: "num muted" }, filled(value)));
  put($("fill"), 
    el("p", { class: "note" },
      `No steps to walk (${filling.why}). ${shown.length
        ? "What its share of the buffer is made of, by formula:"
        : `It takes ${bytes(group.buffer)} of buffer.`}`),
    el("div", { class: "compare formula" }, shown.map(line)),
  );
}

// -- the staircase ------------------------------------------------------------------------------------------

function staircase() {
  const holder = $("stairs"),
    stairs = D.stairs.map(([buffer, since, ...others]) => [buffer ?? Infinity, since ?? Infinity, ...others]);
  const width = Math.max(holder.clientWidth, 320), height = 330, left = 58, right = 16, bottom = 30,
    topPad = 18;
  const buffers = [...stairs.flatMap((s) => [s[0], s[1]]), ...D.front.map((p) => p[1]), BUFFER];
  const limited = buffers.filter((value) => value < Infinity);
  if (!limited.length) limited.push(Math.max(1, ...D.groups.map((group) => group.buffer)));
  // Where a buffer without a limit stands.
  const largest = Math.max(...limited), endless = buffers.includes(Infinity) ? 4 * largest : Infinity;
  const low = Math.log2(Math.min(...limited)) - 0.15,
    high = endless < Infinity ? Math.log2(endless) + 0.6 : Math.max(Math.log2(largest), low + 1) + 0.25;
  const most = Math.max(...stairs.map((s) => s[2]), ...D.front.map((p) => p[0]), D.totals.dram_bytes);
  const marks = D.baselines.filter((b) => !b.plan && b.name !== "proven lower bound" && b.bytes < 1.6 * most);
  const top = 1.05 * Math.max(most, ...marks.map((b) => b.bytes));
  const x = (value) =>
    left + ((width - left - right) * (Math.log2(Math.min(value, endless)) - low)) / (high - low);
  const y = (value) => height - bottom - ((height - bottom - topPad) * value) / top;
  const picture = chart(width, height, "DRAM bytes of the best plan against the size of the buffer");
  picture.append(levels(left, width - right, y, top, 6));
  const axis = svg("g", { class: "axis" });
  const every = (high - low) * 70 > width - left - right ? 2 : 1;
  for (let k = Math.ceil(low); k <= (endless < Infinity ? Math.log2(largest) : high); k++) {
    axis.append(svg("line", { x1: x(2 ** k), x2: x(2 ** k), y1: topPad, y2: height - bottom }));
    if (k % every === 0)
      axis.append(svg("text", { x: x(2 ** k), y: height - 11, "text-anchor": "middle" }, size(2 ** k)));
  }
  if (endless < Infinity)
    axis.append(svg("line", { x1: x(endless), x2: x(endless), y1: topPad, y2: height - bottom }),
      svg("text", { x: width - right, y: height - 11, "text-anchor": "end" }, "unlimited"));
  picture.append(axis);
  for (const b of marks) {
    // On the right the staircase is low.
    const name = `${b.name}${b.outside ? " *" : ""}, ${size(b.bytes)}`, above = b.bytes > D.totals.dram_bytes;
    picture.append(
      svg("line", { class: "level", x1: left, x2: width - right, y1: y(b.bytes), y2: y(b.bytes) }),
      svg("text", { class: "mark-text", x: above ? width - right : left + 6,
        "text-anchor": above ? "end" : "start", y: y(b.bytes) + (above ? -5 : 13) }, name));
  }
  const line = (corners) => corners.map(([buffer, level], k) =>
    `${k ? "L" : "M"}${x(buffer ?? Infinity).toFixed(1)} ${y(level).toFixed(1)}`).join("");
  const { plan, bound, between, front } = D.steps;
  picture.append(svg("path", { class: "between", d: `${line(between)}Z` }),
    svg("path", { class: "bound", d: line(bound) }));
  picture.append(svg("path", { class: "stair", d: line(plan) }),
    svg("path", { class: "front-line", d: line(front) }));
  for (const [buffer, since, dram, bound, groups] of stairs) {
    const proven = bound >= dram;
    picture.append(svg("circle", { class: proven ? "proven" : "open", cx: x(buffer), cy: y(dram), r: 3 }));
    const span = since === buffer ? `buffer ${capacity(buffer)}`
      : buffer === Infinity ? `from ${bytes(since)}` : `${count(since)} to ${bytes(buffer)}`;
    picture.append(hover(svg("circle", { class: "hit", cx: x(buffer), cy: y(dram), r: 9 }),
      (event) => showTip(event.clientX, event.clientY, el("strong", {}, span),
        rows([["DRAM", bytes(dram)], proven ? ["proven", "optimal"] : ["proven bound", bytes(bound)],
          ["groups", count(groups)],
          ["to this plan", `${dram > D.totals.dram_bytes ? "+" : ""}${
            percent(dram - D.totals.dram_bytes, D.totals.dram_bytes)}`]]))));
  }
  if (D.front.length) {
    for (const [dram, buffer] of D.front) {
      const show = (event) => showTip(event.clientX, event.clientY, el("strong", {}, "Plan of the front"),
        rows([["DRAM", bytes(dram)], ["buffer", bytes(buffer)]]));
      picture.append(hover(svg("circle", { class: "front", cx: x(buffer), cy: y(dram), r: 3.5 }), show));
    }
  }
  const [px, py] = [x(BUFFER), y(D.totals.dram_bytes)];
  const flip = px > width - 190;
  picture.append(svg("circle", { class: "own", cx: px, cy: py, r: 5, "pointer-events": "none" }),
    svg("text", { class: "mark-text", x: px + (flip ? -10 : 10), y: py - 9,
      "text-anchor": flip ? "end" : "start", style: { "font-weight": "600" } },
      `this plan, ${size(D.totals.dram_bytes)}`));
  const legend = [["proven", "proven optimal"]];
  if (stairs.some((s) => s[3] < s[2])) legend.push(["open", "best found, not proven"]);
  if (bound.length && stairs.length > 1)
    legend.push(["between", "from the best plan down to the proven bound: there the optimum lies"]);
  if (D.front.length) legend.push(["front", "Pareto front of the search: DRAM against buffer"]);
  put(holder, picture, el("div", { class: "chart-legend" }, legend.map(([cls, text]) => el("span", {},
    svg("svg", { width: 22, height: 10, viewBox: "0 0 22 10",
      style: { display: "inline-block", width: "22px", "vertical-align": "-1px", "margin-right": "6px" } },
      cls === "between" ? svg("rect", { class: cls, x: 2, y: 0, width: 18, height: 10 })
        : svg("circle", { class: cls, cx: 11, cy: 5, r: 3.5 })), text))));
}
