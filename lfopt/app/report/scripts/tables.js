// The table of groups, and the list of cuts.

const scopeLine = (scope, width) => scope && el("div", { class: "scope" }, shorten(scope, width));
const COLUMNS = [
  { name: "group", of: (g) => g, cell: (g) => chip(g), rising: true },
  { name: "operators", of: (g) => span(D.groups[g]),
    cell: (g) => [el("td", { class: "ops", title: [span(D.groups[g]), D.groups[g].scope].join("\n") },
      shortSpan(D.groups[g]), scopeLine(D.groups[g].scope, room(34)))], text: true },
  { name: "count", of: (g) => D.groups[g].ops.length },
  { name: "mode", of: (g) => D.groups[g].mode, cell: (g) => D.groups[g].mode, text: true },
  ...CLASSES.map((name, k) => ({ name, of: (g) => D.groups[g].by[k],
    hidden: !D.groups.some((group) => group.by[k]) })),
  { name: "DRAM bytes", of: (g) => total(D.groups[g]), strong: true },
  { name: "unfused", of: (g) => unfused(D.groups[g]) },
  { name: "buffer", of: (g) => D.groups[g].buffer, cell: (g) => meter(D.groups[g].buffer) },
  { name: "cycles", of: (g) => D.groups[g].cycles[0] },
  { name: "energy", of: (g) => D.groups[g].energy, cell: (g) => joules(D.groups[g].energy) },
].filter((column) => !column.hidden);

function meter(value) {
  if (BUFFER === Infinity) return count(value);
  const part = value / BUFFER;
  return [count(value), el("span", { class: part > 0.9 ? "meter full" : "meter", title: filled(value) },
    el("i", { style: { width: `${Math.min(100, 100 * part)}%` } }))];
}

let sorting = { column: 0, down: false };
let lines = [];

function groupTable() {
  const body = el("tbody");
  lines = D.groups.map((_, g) => el("tr", { onclick: () => select(g) }, COLUMNS.map((column) => {
    const content = column.cell ? column.cell(g) : count(column.of(g));
    if (Array.isArray(content) && content[0]?.tagName === "TD") return content;
    return el("td", { class: column.text || column.name === "group" ? "" : "num" },
      column.strong ? el("strong", {}, content) : content);
  })));
  const heads = COLUMNS.map((column, k) => el("th",
    { scope: "col", class: column.text || k === 0 ? "" : "num" },
    el("button", { type: "button", onclick: () => sortBy(k) }, column.name)));
  const order = () => {
    const { column, down } = sorting, of = COLUMNS[column].of;
    const sorted = D.groups.map((_, g) => g).sort((a, b) => (of(a) < of(b) ? -1 : of(a) > of(b) ? 1 : a - b));
    put(body, ...(down ? sorted.reverse() : sorted).map((g) => lines[g]));
    heads.forEach((head, k) => (k === column
      ? head.setAttribute("aria-sort", down ? "descending" : "ascending")
      : head.removeAttribute("aria-sort")));
  };
  const sortBy = (k) => {
    const start = !(COLUMNS[k].text || COLUMNS[k].rising); // numbers: the largest first
    sorting = { column: k, down: sorting.column === k ? !sorting.down : start };
    order();
  };
  put($("groups"), el("table", {}, el("thead", {}, el("tr", {}, heads)), body));
  order();
}

watchers.push((group) => {
  const holder = $("groups");
  lines.forEach((line, g) => line.classList.toggle("chosen", g === group));
  const row = lines[group];
  if (!row) return;
  const top = row.offsetTop - 32, bottom = row.offsetTop + row.offsetHeight;
  if (top < holder.scrollTop || bottom > holder.scrollTop + holder.clientHeight)
    holder.scrollTop = top - holder.clientHeight / 2;
});

// -- cuts ---------------------------------------------------------------------------------------------------

const ORDERS = {
  "bytes crossing": (a, b) => b.bytes - a.bytes,
  "bytes saved": (a, b) => b.saves - a.saves,
  "least overflow": (a, b) => (a.needed || Infinity) - (b.needed || Infinity),
  "execution": (a, b) => a.pair[0] - b.pair[0] || a.pair[1] - b.pair[1],
};
let shownVerdict = "", onlyOwn = false, cutOrder = "bytes crossing";

function cutRow(k) {
  const cut = D.cuts[k];
  const names = cut.maps.map((m) => D.maps.name[m]);
  return el("div", { class: "cut" },
    el("div", { class: "pair" }, chip(cut.pair[0]), el("span", { class: "arrow", "aria-label": "to" }, "→"),
      chip(cut.pair[1]),
      el("div", { class: `verdict ${cut.verdict.replace(" ", "-")}` }, VERDICTS[cut.verdict])),
    el("div", { class: "num" }, bytes(cut.bytes),
      el("div", { class: "via", title: names.join("\n") },
        names.length > 1 ? `${names.length} maps` : shape(D.maps.shape[cut.maps[0]]))),
    el("div", { class: "bar-cell" }, cut.needed
      ? [needBar(cut), el("div", { class: "need-text" },
        BUFFER < Infinity ? `${count(cut.needed)} of ${bytes(BUFFER)}` : bytes(cut.needed))] : null),
    el("div", { class: "text" }, el("p", {}, cut.why),
      el("div", { class: "via mono" }, `via ${shorten(names[0], 60)}`, " ", pictureButton(k))),
  );
}

function cutList() {
  const found = D.cuts.map((cut, k) => [cut, k])
    .filter(([cut]) => (!shownVerdict || cut.verdict === shownVerdict) &&
      (!onlyOwn || cut.pair.includes(selected)))
    .sort((a, b) => ORDERS[cutOrder](a[0], b[0]));
  const none = D.cuts.length ? "No cut of this kind." : "No map passes from one group to another.";
  put($("cut-list"),
    ...(found.length ? found.map(([, k]) => cutRow(k)) : [el("p", { class: "empty" }, none)]));
}

function cutFilters() {
  const kinds = Object.keys(VERDICTS)
    .map((kind) => [kind, D.cuts.filter((cut) => cut.verdict === kind).length]).filter(([, n]) => n);
  const button = (text, pressed, press) => el("button",
    { type: "button", "aria-pressed": String(pressed), onclick: () => { press(); cutFilters(); cutList(); } },
    text);
  put($("cut-filters"), 
    button(`all ${count(D.cuts.length)}`, !shownVerdict, () => { shownVerdict = ""; }),
    ...kinds.map(([kind, n]) => button(`${VERDICTS[kind]} ${count(n)}`, shownVerdict === kind,
      () => { shownVerdict = shownVerdict === kind ? "" : kind; })),
    button("of the selected group", onlyOwn, () => { onlyOwn = !onlyOwn; }),
    el("label", {}, "order by",
      el("select", { onchange: (event) => { cutOrder = event.target.value; cutList(); } },
      Object.keys(ORDERS).map((name) => el("option", { value: name, selected: name === cutOrder }, name)))),
  );
}
watchers.push(() => onlyOwn && cutList());
