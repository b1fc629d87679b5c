// If the group were larger: a neighbour that does not fit with it, drawn once per explainer, links shaded by
// how much they are to blame.

const picturesOf = D.groups.map(() => []);
D.pictures.forEach((picture, n) => D.cuts[picture.cut].pair.forEach((g) => picturesOf[g].push(n)));
const pictureOf = new Map(D.pictures.map((picture, n) => [picture.cut, n]));

const EXPLAINERS = { analytic: "analytic", rg: "RG-Explainer", pg: "PGExplainer", gnne: "GNNExplainer",
  random: "random" };
const RANKED = 3; // links listed below a picture
const KINDS_FROM = 1.15; // scale from which kinds are written
const BOX = 33; // width of an operator
let pictured = -1;

// What a score makes of a link: 0 (not to blame) to 1.
function heats(said, name) {
  const known = said.scores.filter((score) => score !== null);
  const top = Math.max(...known), low = name === "analytic" ? 0 : Math.min(...known);
  const scale = top > low ? top - low : 1;
  return said.scores.map((score) =>
    (score === null ? 0 : known.length === 1 ? 1 : Math.max(0, (score - low) / scale)));
}

const ranking = (said) => said.scores.map((score, k) => [score, k]).filter(([score]) => score !== null)
  .sort((a, b) => b[0] - a[0] || a[1] - b[1]).map(([, k]) => k);
const scoreText = (name, score) => (score === null ? "not blamed"
  : name === "analytic" ? `${bytes(score)} freed` : trimmed(score));
const isDivided = (parts, picture, k) => Boolean(parts) &&
  parts[picture.links[2 * k]] !== parts[picture.links[2 * k + 1]];
const endsOf = (picture, k) => [picture.ops[picture.links[2 * k]], picture.ops[picture.links[2 * k + 1]]];

// The map that passes along a link; -1 for two readers of a map from outside.
function mapOf(picture, k) {
  const [u, v] = endsOf(picture, k);
  return D.ops.results[u].find((map) => D.edges.some(([source, target, other]) =>
    other === map && source === first + u && target === first + v)) ?? -1;
}

// What the names of all operators of a picture begin with, up to a dot, a slash or the like.
function prefixOf(picture) {
  const [one, ...others] = picture.ops.map(opName);
  let length = one.length;
  for (const name of others) while (!name.startsWith(one.slice(0, length))) length--;
  return one.slice(0, length).replace(/[^./:_]*$/, "").length;
}

// The way of two readers of one map, past what lies between them: start, bend, end.
function aside([x0, y0], [x1, y1]) {
  const far = Math.hypot(x1 - x0, y1 - y0) || 1, out = Math.abs(x1 - x0) < 20 ? 52 : 0.25 * far + 14;
  return [x0, y0, (x0 + x1) / 2 + (out * (y1 - y0)) / far, (y0 + y1) / 2 - (out * (x1 - x0)) / far, x1, y1];
}
const bow = (way) => `M${way[0]} ${way[1]}Q${way.slice(2).join(" ")}`;

// Middle of a way, and its direction there.
function middle(points, bowed) {
  if (bowed) {
    const [x0, y0, cx, cy, x1, y1] = points;
    return [(x0 + 2 * cx + x1) / 4, (y0 + 2 * cy + y1) / 4, Math.atan2(y1 - y0, x1 - x0)];
  }
  const lengths = [];
  for (let k = 2; k < points.length; k += 2)
    lengths.push(Math.hypot(points[k] - points[k - 2], points[k + 1] - points[k - 1]));
  let left = sum(lengths) / 2, k = 0;
  while (k < lengths.length - 1 && left > lengths[k]) left -= lengths[k++];
  const [x0, y0, x1, y1] = points.slice(2 * k, 2 * k + 4);
  const part = left / (lengths[k] || 1);
  return [x0 + (x1 - x0) * part, y0 + (y1 - y0) * part, Math.atan2(y1 - y0, x1 - x0)];
}

function drawing_(picture, name, width) {
  const said = picture.by[name], heat = heats(said, name), pair = D.cuts[picture.cut].pair;
  const [w, h] = picture.size;
  const k = Math.min(width / w, 2.3);
  const box = svg("svg", { class: `blame${k >= KINDS_FROM ? " near" : ""}`, viewBox: `0 0 ${w} ${h}`,
    width: Math.round(w * k), height: Math.round(h * k), role: "img",
    "aria-label": `Groups ${pair[0]} and ${pair[1]} as one, links shaded by the scores of ${
      EXPLAINERS[name]}; the links to blame the most are listed below` });
  const at = (p) => [picture.nodes[2 * p], picture.nodes[2 * p + 1]];
  const ways = picture.routes.map((route, n) =>
    route || aside(at(picture.links[2 * n]), at(picture.links[2 * n + 1])));
  const order = ways.map((_, n) => n).sort((a, b) => heat[a] - heat[b]); // those to blame the most on top
  const lines = svg("g"), marks = svg("g");
  for (const n of order) {
    const d = picture.routes[n] ? path(ways[n]) : bow(ways[n]);
    const style = { "--heat": `${Math.round(100 * heat[n])}%`, "--thick": (1.3 + 2.9 * heat[n]).toFixed(2) };
    lines.append(svg("path", { class: picture.routes[n] ? "link" : "link beside", d, style }),
      hover(svg("path", { class: "grip", d }),
        (event) => tellLink(picture, name, n, event.clientX, event.clientY)));
    const best = isDivided(picture.best.parts, picture, n), own = isDivided(said.parts, picture, n);
    if (!best && !own) continue;
    const [x, y, angle] = middle(ways[n], !picture.routes[n]);
    const mark = svg("g", { class: "mark", transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` });
    if (own) mark.append(svg("circle", { class: "ring", r: 3.6 }));
    if (best) {
      const [dx, dy] = [-5.4 * Math.sin(angle), 5.4 * Math.cos(angle)].map((value) => value.toFixed(1));
      for (const cls of ["under", "tick"])
        mark.append(svg("line", { class: cls, x1: -dx, y1: -dy, x2: dx, y2: dy }));
    }
    marks.append(mark);
  }
  const boxes = svg("g");
  picture.ops.forEach((i, p) => {
    const [x, y] = at(p);
    const height = D.ops.macs[i] > 0 ? NODE.heavy : NODE.light;
    const node = svg("g", { class: "node" },
      svg("rect", { class: `f${D.colours[D.ops.group[i]]}`, x: x - BOX / 2, y: y - height / 2, width: BOX,
        height, rx: 2.5 }),
      svg("text", { class: "kind", x, y: y + 1.8 }, shorten(D.ops.kind[i], 9)));
    node.addEventListener("click", () => find(i));
    boxes.append(hover(node, (event) => tell(first + i, event.clientX, event.clientY)));
  });
  box.append(lines, boxes, marks);
  return box;
}

function tellLink(picture, name, n, x, y) {
  const [u, v] = endsOf(picture, n), map = mapOf(picture, n);
  const place = ranking(picture.by[name]).indexOf(n);
  showTip(x, y,
    el("div", { class: "mono" },
      `${shorten(opName(u), 40)} ${map < 0 ? "~" : "→"} ${shorten(opName(v), 40)}`),
    rows([[EXPLAINERS[name], scoreText(name, picture.by[name].scores[n])],
      place >= 0 && ["rank", `${count(place + 1)} of ${count(picture.links.length / 2)}`],
      map >= 0 ? ["map", `${shape(D.maps.shape[map])}, ${bytes(D.maps.bytes[map])}`]
        : ["map", "both read the same one from outside"],
      isDivided(picture.best.parts, picture, n) && ["cheapest cut", "goes through it"],
      isDivided(picture.by[name].parts, picture, n) && ["SPLIT", "cuts it"]]));
}

// What SPLIT makes of these scores, against the best.
function outcome(picture, said) {
  if (!said.parts) return el("span", { class: "muted" }, "SPLIT finds nothing");
  const extra = said.bytes - picture.best.bytes, groups = new Set(said.parts).size;
  const text = `SPLIT: ${count(groups)} groups, ${
    extra ? `${extra > 0 ? "+" : "−"}${percent(Math.abs(extra), picture.best.bytes, 2)}`
      : "the cheapest cut"}`;
  return el("span", { class: extra > 0 ? "" : "good", title: bytes(said.bytes) }, text);
}

// The marks of the drawing, for words about them.
const sign = (cls) => svg("svg",
  { class: "blame sign", width: 14, height: 14, viewBox: "-7 -7 14 14",
    "aria-label": cls === "tick" ? "cheapest cut" : "SPLIT" },
  cls === "tick" ? svg("line", { class: cls, x1: 0, x2: 0, y1: -5.5, y2: 5.5 })
    : svg("circle", { class: cls, r: 4.5 }));

function card(picture, name, width) {
  const said = picture.by[name], heat = heats(said, name),
    chars = Math.max(10, Math.floor((width - 120) / 15)), from = prefixOf(picture);
  const list = ranking(said).slice(0, RANKED).map((n) => {
    const [u, v] = endsOf(picture, n);
    const text = `${opName(u)} → ${opName(v)}`;
    return el("li", { title: text, },
      el("i", { class: "swatch heat", style: { "--heat": `${Math.round(100 * heat[n])}%` } }),
      el("span", { class: "mono" },
        `${shorten(opName(u).slice(from), chars)} → ${shorten(opName(v).slice(from), chars)}`),
      isDivided(picture.best.parts, picture, n) ? sign("tick") : null,
      el("span", { class: "muted" }, name === "analytic" ? bytes(said.scores[n]) : trimmed(said.scores[n])));
  });
  return el("figure", {}, el("figcaption", {}, el("strong", {}, EXPLAINERS[name]), outcome(picture, said)),
    el("div", { class: "drawn" }, drawing_(picture, name, width)), el("ol", { class: "list" }, list));
}

function showPicture(n) {
  pictured = n;
  const picture = D.pictures[n], cut = D.cuts[picture.cut], names = Object.keys(picture.by);
  const [a, b] = cut.pair;
  $("grown-title").textContent = `Groups ${a} and ${b} as one`;
  const saves = cut.saves > 0 ? ` One group would move ${bytes(cut.saves)} less.` : "";
  const enough = cut.enough ? ` The smallest buffer that holds it: ${bytes(cut.enough)}.` : "";
  $("grown-note").textContent = `${cut.why}${saves}${enough}`;
  const holder = $("grown-pictures");
  const columns = innerWidth <= 760 ? 1 : names.length === 4 && holder.clientWidth > 1100 ? 4
    : Math.min(names.length, 3);
  const width = Math.floor((holder.clientWidth - 18 * (columns - 1)) / columns);
  holder.style.setProperty("--columns", columns);
  holder.classList.toggle("alone", names.length === 1);
  put(holder, ...names.map((name) => card(picture, name, names.length > 1 ? width : Math.min(width, 640))));
  const best = picture.best;
  const who = best.by === "plan" ? "the plan's own" : best.by === "exact" ? "found by the exact search"
    : `found by ${EXPLAINERS[best.by]}`;
  const now = total(D.groups[a]) + total(D.groups[b]);
  const less = best.bytes < now ? `, ${bytes(now - best.bytes)} less than the plan's` : "";
  put($("grown-legend"),
    el("span", {}, chip(a), " ", chip(b)),
    el("span", {}, el("i", { class: "ramp" }), "less … more to blame"),
    el("span", {}, sign("tick"),
      `cheapest cut: ${count(new Set(best.parts).size)} groups, ${bytes(best.bytes)}${less}; ${who}${
        best.proven ? ", proven" : ""}`),
    el("span", {}, sign("ring"), "where SPLIT cuts by these scores"),
    picture.routes.includes(null) ? el("span", {}, "dotted: both read the same map from outside") : null);
  tabs();
}

// The pictures of the selected group, and a way to all others.
function tabs() {
  const own = selected >= 0 ? picturesOf[selected] : [];
  const shown = own.includes(pictured) || pictured < 0 ? own : [pictured, ...own];
  put($("grown-tabs"), ...shown.map((n) => {
    const [a, b] = D.cuts[D.pictures[n].cut].pair;
    return el("button", { type: "button", "aria-pressed": String(n === pictured),
      onclick: () => showPicture(n) }, `${a} → ${b}`);
  }));
}

const pictureButton = (k) => (pictureOf.has(k)
  ? el("button", { type: "button", class: "link picture",
    onclick: (event) => {
      event.stopPropagation();
      showPicture(pictureOf.get(k));
      $("grown").scrollIntoView();
    } }, "picture") : null);

if (D.pictures.length) {
  watchers.push((group) => {
    const own = picturesOf[group];
    showPicture(own.includes(pictured) ? pictured : own.length ? own[0] : Math.max(pictured, 0));
  });
} else $("grown").hidden = true;
