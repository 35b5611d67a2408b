// SPDX-License-Identifier: Apache-2.0
// Dark and light: as the system has it, or as the button says.

const THEMES = ["auto", "light", "dark"];
const darkSystem = matchMedia("(prefers-color-scheme: dark)");
let theme = "auto";
let printing = false;

function isDark() {
  if (printing) return false;
  return theme === "dark" || (theme === "auto" && darkSystem.matches);
}

// A colour of the style sheet.
function color(name) {
  return getComputedStyle(document.documentElement)
      .getPropertyValue(`--${name}`).trim();
}

function applyTheme() {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
  byId("theme").textContent = `Theme: ${theme}`;
  redrawAll();
}

function startTheme() {
  byId("theme").addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    applyTheme();
  });
  darkSystem.addEventListener("change", applyTheme);
  // Paper is white.
  addEventListener("beforeprint", () => {
    printing = true;
    applyTheme();
  });
  addEventListener("afterprint", () => {
    printing = false;
    applyTheme();
  });
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
}
