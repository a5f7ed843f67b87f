import { store, stored } from "./storage.js";

// Switches between dark and light by the button #theme.

const preferred = matchMedia("(prefers-color-scheme: dark)");
const chosen = () => stored("theme", "");

function show() {
  if (chosen()) document.documentElement.dataset.theme = chosen();
  else delete document.documentElement.dataset.theme;
}

show();
document.getElementById("theme")?.addEventListener("click", () => {
  const isDark = chosen() ? chosen() === "dark" : preferred.matches;
  store("theme", isDark ? "light" : "dark");
  show();
});
