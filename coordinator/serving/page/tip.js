// The one floating box: a title and a small table, beside what the pointer or the focus is on.

import { byId, make, setHidden } from "./dom.js";

const MARGIN = 10;

// rows: arrays of text; the first row is the head. anchor: a DOMRect.
export function showTip(title, rows, anchor) {
  const tip = byId("tip");
  const [head, ...body] = rows;
  const table = make(
    "table",
    { class: "numbers" },
    make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)))),
    make(
      "tbody",
      {},
      ...body.map(([name, ...values]) =>
        make("tr", {}, make("th", { scope: "row" }, name), ...values.map((v) => make("td", {}, v))),
      ),
    ),
  );
  tip.replaceChildren(make("strong", {}, title), table);
  setHidden(tip, false);
  const size = tip.getBoundingClientRect();
  const room = document.documentElement.clientWidth;
  let left = anchor.right + MARGIN;
  if (left + size.width > room - MARGIN) left = anchor.left - size.width - MARGIN;
  left = Math.max(MARGIN, Math.min(left, room - size.width - MARGIN));
  const bottom = document.documentElement.clientHeight - size.height - MARGIN;
  const top = Math.max(MARGIN, Math.min(anchor.top, bottom));
  tip.style.setProperty("left", `${left}px`);
  tip.style.setProperty("top", `${top}px`);
}

export function hideTip() {
  setHidden(byId("tip"), true);
}
