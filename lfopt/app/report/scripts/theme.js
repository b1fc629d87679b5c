// Light or dark: the system's, until the button says otherwise.

const system = matchMedia("(prefers-color-scheme: dark)");
let chosen = null;
try { chosen = localStorage.getItem("lfopt-theme"); } catch { /* a file may have no storage */ }
const theme = () => {
  document.documentElement.dataset.theme = chosen || (system.matches ? "dark" : "light");
};
system.addEventListener("change", theme);
document.getElementById("theme").addEventListener("click", () => {
  chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("lfopt-theme", chosen); } catch { /* then it lasts as long as the page */ }
  theme();
});
const paper = matchMedia("print");
paper.addEventListener("change", () =>
  (paper.matches ? (document.documentElement.dataset.theme = "light") : theme()));
theme();
