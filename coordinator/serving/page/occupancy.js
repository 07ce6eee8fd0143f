// Slots and pages: who holds what. A page is a square in the colour of the slot that holds it.

import { byId, keyed, make, makeBar, makeSvg, setAttribute, setBar, setText } from "./dom.js";
import { count, percent, plural } from "./format.js";

const FREE_SHOWN_MAX = 32;
const SQUARES_MAX = 2048;
const SQUARE = 9;
const GAP = 2;
const TINTS = 6;

function createSlot() {
  const parts = {
    name: make("span", { class: "slot-name" }),
    holder: make("span", { class: "slot-holder" }),
    bar: makeBar("slot"),
    text: make("span", { class: "muted numbers small-text" }),
  };
  const row = make(
    "li",
    {},
    make("div", { class: "slot-head" }, parts.name, parts.holder),
    parts.bar,
    parts.text,
  );
  row.parts = parts;
  return row;
}

function pagesOf(slot) {
  return slot.pages.reduce((sum, [, length]) => sum + length, 0);
}

function showSlot(row, { index, slot }) {
  const { parts } = row;
  setText(parts.name, String(index));
  setText(parts.holder, slot === null ? "free" : `request ${slot.request_id}`);
  setAttribute(row, "data-free", slot === null);
  setAttribute(row, "data-tint", slot === null ? null : index % TINTS);
  if (slot === null) {
    setBar(parts.bar, `Slot ${index}: free`, []);
    setText(parts.text, "");
    return;
  }
  const tokens = `${count(slot.computed_tokens)} of ${plural(slot.tokens_max, "token", "tokens")}`;
  const share = percent(slot.computed_tokens, slot.tokens_max);
  setBar(parts.bar, `Slot ${index}: ${tokens}`, [{ kind: "tint", share }]);
  setText(parts.text, `${tokens}, ${plural(pagesOf(slot), "page", "pages")}`);
}

export class Occupancy {
  #drawn = "";

  update(engine) {
    const all = engine.slots.map((slot, index) => ({ index, slot }));
    const shown = all.length > FREE_SHOWN_MAX ? all.filter(({ slot }) => slot !== null) : all;
    keyed(byId("slots"), shown, ({ index }) => index, createSlot, showSlot);
    const { pages, page_tokens } = engine.limits;
    const held = pages - engine.pages_free;
    const text = `${count(held)} of ${plural(pages, "page", "pages")} held${engine.phase === "failed" ? " when it failed" : ""}, ${count(page_tokens)} tokens each`;
    setText(byId("pages-text"), text);
    this.#pages(engine, text);
  }

  // The map is drawn again only when something moved or the width changed.
  #pages(engine, text) {
    const box = byId("pages");
    const owners = new Array(engine.limits.pages).fill(null);
    engine.slots.forEach((slot, index) => {
      for (const [first, length] of slot?.pages ?? []) owners.fill(index, first, first + length);
    });
    const width = box.clientWidth;
    const drawn = `${width} ${owners.join(",")}`;
    if (drawn === this.#drawn || width === 0) return;
    this.#drawn = drawn;
    const each = Math.ceil(owners.length / SQUARES_MAX);
    const squares = Math.ceil(owners.length / each);
    const columns = Math.max(1, Math.floor((width + GAP) / (SQUARE + GAP)));
    const rows = Math.ceil(squares / columns);
    const svg = makeSvg("svg", {
      role: "img",
      "aria-label": text,
      width: Math.min(squares, columns) * (SQUARE + GAP) - GAP,
      height: Math.max(1, rows * (SQUARE + GAP) - GAP),
    });
    for (let square = 0; square < squares; square += 1) {
      const owner = owners.slice(square * each, (square + 1) * each).find((one) => one !== null);
      svg.append(
        makeSvg("rect", {
          x: (square % columns) * (SQUARE + GAP),
          y: Math.floor(square / columns) * (SQUARE + GAP),
          width: SQUARE,
          height: SQUARE,
          rx: 2,
          "data-tint": owner === undefined ? null : owner % TINTS,
        }),
      );
    }
    box.replaceChildren(svg);
  }
}
