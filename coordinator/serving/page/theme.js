// Light, dark, or what the system prefers. The choice is remembered where storage allows it.

import { setText } from "./dom.js";

const NAME = "rankproof-theme";
const NEXT = { system: "light", light: "dark", dark: "system" };

function remembered() {
  try {
    const value = localStorage.getItem(NAME);
    return value in NEXT ? value : "system";
  } catch {
    return "system";
  }
}

function remember(value) {
  try {
    localStorage.setItem(NAME, value);
  } catch {
    // Without storage the choice lasts as long as the page.
  }
}

export function themeButton(button) {
  const show = (theme) => {
    document.documentElement.dataset.theme = theme;
    setText(button, `Theme: ${theme}`);
  };
  show(remembered());
  button.addEventListener("click", () => {
    const theme = NEXT[document.documentElement.dataset.theme];
    remember(theme);
    show(theme);
  });
}
