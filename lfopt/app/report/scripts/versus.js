// Two plans: what belongs to one change is lit together, in both drawings and in the list.

const marked = [...document.querySelectorAll("[data-change]")];
const changeAt = (target) => target.closest?.("[data-change]")?.dataset.change;
const light = (change) => marked.forEach((node) =>
  node.classList.toggle("lit", node.dataset.change === change));

document.addEventListener("pointerover", (event) => light(changeAt(event.target)));
document.addEventListener("focusin", (event) => light(changeAt(event.target)));
document.addEventListener("click", (event) => {
  const change = event.target.closest?.("svg") && changeAt(event.target);
  if (change) document.getElementById(`change-${change}`).scrollIntoView({ block: "center" });
});
document.documentElement.dataset.ready = "yes";
