// Search, and the first drawing of everything.

const finder = $("find"), foundList = $("found");
let hits = [], hit = -1;

function matches(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const found = [];
  for (let i = 0; i < D.operators && found.length < 400; i++) {
    const name = opName(i).toLowerCase(), all = `${name} ${D.ops.kind[i]} ${from(i)}`.toLowerCase();
    if (words.every((word) => all.includes(word)))
      found.push([name.startsWith(words[0]) ? 0 : 1, name.length, i]);
  }
  return found.sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2]).slice(0, 40).map(([, , i]) => i);
}

function list() {
  hits = matches(finder.value);
  hit = hits.length ? 0 : -1;
  const none = finder.value.trim() && !hits.length;
  put(foundList, ...hits.map((i, k) => el("li",
    { role: "option", id: `found-${k}`, onpointerdown: (event) => { event.preventDefault(); take(k); } },
    el("span", { class: "mono" }, shorten(opName(i), 46),
      D.ops.scope[i] && el("span", { class: "scope" }, shorten(D.ops.scope[i], 52))),
    el("span", { class: "muted" }, `${D.ops.kind[i]}, group ${D.ops.group[i]}`))),
  ...(none ? [el("li", { class: "muted" }, "no operator of that name")] : []));
  foundList.hidden = !hits.length && !none;
  finder.setAttribute("aria-expanded", String(!foundList.hidden));
  mark();
}

function mark() {
  [...foundList.children].forEach((item, k) => item.setAttribute("aria-selected", String(k === hit)));
  if (hit >= 0) {
    finder.setAttribute("aria-activedescendant", `found-${hit}`);
    foundList.children[hit].scrollIntoView({ block: "nearest" });
  } else finder.removeAttribute("aria-activedescendant");
}

function close() {
  foundList.hidden = true;
  finder.setAttribute("aria-expanded", "false");
}

function take(k) {
  close();
  find(hits[k]);
  const bounds = graph.getBoundingClientRect();
  if (bounds.top < 0 || bounds.bottom > innerHeight + 200) $("network").scrollIntoView();
}

finder.addEventListener("input", list);
finder.addEventListener("focus", () => finder.value && list());
finder.addEventListener("blur", close);
finder.addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    if (hits.length) hit = (hit + (event.key === "ArrowDown" ? 1 : hits.length - 1)) % hits.length;
    mark();
  } else if (event.key === "Enter" && hit >= 0) take(hit);
  else if (event.key === "Escape") close();
  else return;
  event.preventDefault();
});
addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName || "")) {
    event.preventDefault();
    finder.focus();
  }
});

// -- start --------------------------------------------------------------------------------------------------

compare();
bars();
groupTable();
staircase();
cutFilters();
heatModes();
draw();
drawnWidth = graph.clientWidth;
select(D.groups.reduce((best, group, g) => (group.saved > D.groups[best].saved ? g : best), 0));
cutList();

let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  bars();
  staircase();
  if (selected >= 0) fillChart(selected);
  if (pictured >= 0) showPicture(pictured);
});
document.documentElement.dataset.ready = "yes";
