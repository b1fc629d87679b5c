// The selected group: figures, operators, what keeps it apart from its neighbours, its places in the buffer.

const cutsOf = D.groups.map(() => []);
D.cuts.forEach((cut, k) => cut.pair.forEach((g) => cutsOf[g].push(k)));

const CUTS_SHOWN = 5; // beside the drawing: those that most bytes cross
const VERDICTS = {
  overflows: "overflows", cycle: "closes a cycle", alone: "runs alone", "no gain": "gains nothing",
  never: "cannot run so", gain: "would gain",
};

function inspect(g) {
  const group = D.groups[g];
  const go = (to, sign, label) => el("button", { type: "button", class: "tool", "aria-label": label,
    disabled: to < 0 || to >= D.groups.length, onclick: () => select(to) }, sign);
  const parts = CLASSES.map((name, k) => [name, group.by[k], k]).filter(([, value]) => value);
  const figures = [
    ...parts.map(([name, value, k]) =>
      [el("span", {}, el("i", { class: `swatch c${k}` }), name), bytes(value)]),
    ["moves", el("strong", {}, bytes(total(group)))],
    ["unfused", `${bytes(unfused(group))}, ${times(unfused(group), total(group))}`],
    ["buffer", andFilled(group.buffer)],
    group.band > 1 && ["rows at a time", count(group.band)],
    group.macs && ["work", macs(group.macs) + (group.again ? `, ${macs(group.again)} of it again` : "")],
    ["cycles, model",
      `${count(group.cycles[0])}${group.cycles[3] === "exact" ? "" : `, ${group.cycles[3]}`}`],
    ["energy, model", joules(group.energy)],
  ].filter(Boolean);
  put($("inspector"), 
    el("h3", {}, el("i", { class: `swatch b${D.colours[g]}`, style: { width: "14px", height: "14px" } }),
      `Group ${g}`, el("span", { class: "badge" }, group.mode),
      go(g - 1, "‹", "Previous group"), go(g + 1, "›", "Next group")),
    el("p", { class: "mono muted", title: span(group) }, shorten(span(group), 92)),
    group.scope && el("p", { class: "scope" }, group.scope),
    el("div", { class: "stack", "aria-hidden": "true" },
      parts.map(([, value, k]) =>
        el("i", { class: `c${k}`, style: { width: `${(100 * value) / total(group)}%` } }))),
    el("dl", { class: "pairs" }, figures.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
    cutsOf[g].length ? el("h4", {}, "Why it is not larger") : null,
    ...cutsOf[g].slice().sort((a, b) => D.cuts[b].bytes - D.cuts[a].bytes).slice(0, CUTS_SHOWN).map((k) => {
      const cut = D.cuts[k], other = cut.pair[0] === g ? cut.pair[1] : cut.pair[0];
      return el("div", { class: "neighbour" },
        el("div", {}, chip(other),
          el("span", { class: "muted" },
            ` ${cut.pair[0] === g ? "after" : "before"} it: ${VERDICTS[cut.verdict]} `),
          pictureButton(k)),
        cut.needed ? needBar(cut) : null, el("p", {}, cut.why));
    }),
    cutsOf[g].length > CUTS_SHOWN ? el("p", { class: "muted" },
      `and ${count(cutsOf[g].length - CUTS_SHOWN)} more cuts in the list at the end`) : null,
    el("h4", {}, `${count(group.ops.length)} operator${group.ops.length > 1 ? "s" : ""}`),
    el("ul", { class: "list" },
      group.ops.map((i) => el("li", {},
        el("button", { type: "button", class: "link", onclick: () => find(i), title: from(i) }, opName(i),
          D.ops.scope[i] && el("span", { class: "scope" }, D.ops.scope[i])),
        el("span", { class: "muted" }, D.ops.kind[i])))),
    el("h4", {}, "Loaded and stored"),
    el("ul", { class: "list" }, group.moves.map(([name, role, loaded, stored]) => el("li", {},
      el("span", { class: "mono" }, shorten(name, 40)),
      el("span", { class: "muted" },
        `${loaded ? `in ${bytes(loaded)}` : ""}${loaded && stored ? ", " : ""}${
          stored ? `out ${bytes(stored)}` : ""}`)))),
  );
  $("inspector").scrollTop = 0;
}

// The buffer that two groups would take as one, against the buffer that there is.
function needBar(cut) {
  const top = (BUFFER < Infinity ? Math.max(cut.needed, BUFFER) : cut.needed) * 1.02;
  const share = (value) => `${(100 * value) / top}%`;
  const parts = cut.rings + cut.weights ? [["rings", cut.rings], ["weights", cut.weights]]
    : [["rings", cut.needed]];
  return el("div", { class: "need", role: "img", "aria-label": `needs ${ofBuffer(cut.needed)}` },
    parts.map(([cls, value]) => el("i", { class: cls, style: { width: share(value) } })),
    BUFFER < Infinity ? el("b", { style: { left: share(BUFFER) } }) : null);
}

function inside(g) {
  const group = D.groups[g], filling = D.fills[g];
  $("inside-title").textContent = `Inside group ${g}`;
  if (filling.steps) {
    const each = Math.ceil(filling.steps / filling.shown.length);
    $("inside-note").textContent =
      `What lies in the buffer and will still be read, over ${count(filling.steps)} steps${
        each > 1 ? `; each column shows the fullest of ${count(each)} steps` : ""}. `
      + `Most: ${bytes(filling.peak[0])}, ${
        BUFFER < Infinity ? `${filled(filling.peak[0])} of the buffer, ` : ""}at step ${
        count(filling.peak[1])}; ${bytes(group.buffer)} are set aside.`;
  } else $("inside-note").textContent = `${ofBuffer(group.buffer)} are set aside.`;
  fillChart(g);
  places(g);
}

function places(g) {
  const filling = D.fills[g];
  const head = (names) => el("thead", {}, el("tr", {},
    names.map((name, k) => el("th", { scope: "col", class: k ? "num" : "" }, el("span", {}, name)))));
  let table;
  if (filling.places) {
    const layers = layersOf(filling);
    const colourOf = (k) => layers.find((layer) => layer.places.includes(k)).colour;
    const order = filling.places.map((p, k) => [p, k]).sort(([a], [b]) => b[3] * b[4] - a[3] * a[4]);
    table = el("table", { class: "places" }, head(["place", "slots × B", "bytes", "used"]),
      el("tbody", {}, order.map(([p, k]) => el("tr", {},
        el("td", { class: "ops",
          title: `${p[0]}, ${p[1] === "map" ? (p[3] > 1 ? "ring of rows" : "one row") : p[1]}, from byte ${
            count(p[2])} of the buffer on` },
        el("i", { class: "swatch", style: { background: colourOf(k) } }), shorten(p[0], room(32))),
        el("td", { class: "num" }, `${count(p[3])} × ${count(p[4])}`),
        el("td", { class: "num" }, count(p[3] * p[4])),
        el("td", { class: "num" }, `${count(filling.most[k])} of ${count(p[3])}`)))));
  } else {
    const rings = (filling.rings || []).slice().sort((a, b) => b[2] - a[2]);
    table = rings.length ? el("table", { class: "places" }, head(["ring", "rows", "bytes"]),
      el("tbody", {}, rings.map(([name, n, value]) => el("tr", {},
        el("td", { class: "ops", title: name }, shorten(name, room(40))),
        el("td", { class: "num" }, count(n)), el("td", { class: "num" }, count(value))))))
      : el("p", { class: "empty" }, "No places are known for this group.");
  }
  const nest = D.groups[g].nest;
  const lines = nest ? el("pre", { class: "nest", title: "how the group runs, as a nest" }, nest) : null;
  put($("places"), lines, table);
}

watchers.push(inspect, inside);
