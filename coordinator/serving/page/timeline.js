// The last steps: a column per step, a lane per rank. A bar's height is the step's time, its parts
// are compute, wire and wait; the coordinator's lane shows the reduce within the whole step.

import { byId, keyed, makeSvg, rove, setAttribute, setHidden, setText } from "./dom.js";
import { count, micros, niceCeiling, plural, quantile, tick } from "./format.js";
import { hideTip, showTip } from "./tip.js";

const GUTTER = 84;
const LANE = 54;
const LANE_GAP = 14;
const AXIS = 24;
const COLUMN_MIN = 9;
const COLUMN_MAX = 22;

function tipRows(step) {
  return [
    ["", "compute", "wire", "wait"],
    ...step.ranks.map((rank, index) => [
      `rank ${index}`,
      micros(rank.compute_us),
      micros(rank.wire_us),
      micros(rank.wait_us),
    ]),
    ["reduce", micros(step.reduce_us), "", ""],
  ];
}

function work(step) {
  const prefill = step.prefill_tokens ? plural(step.prefill_tokens, "prefill token", "prefill tokens") : "";
  const decode = step.decode_rows ? plural(step.decode_rows, "decode row", "decode rows") : "";
  return [prefill, decode].filter(Boolean).join(", ") || "heartbeat, no tokens";
}

function described(step) {
  const ranks = step.ranks.map(
    (rank, index) =>
      `rank ${index}: compute ${micros(rank.compute_us)}, wire ${micros(rank.wire_us)}, wait ${micros(rank.wait_us)}`,
  );
  const head = `Step ${step.step}, ${micros(step.duration_us)}, ${work(step)}`;
  return `${head}; ${ranks.join("; ")}; reduce ${micros(step.reduce_us)}`;
}

export class Timeline {
  #open;
  #svg = makeSvg("svg", { class: "steps" });
  #frame = makeSvg("g", { "aria-hidden": "true" });
  #columns = makeSvg("g", { role: "group", "aria-label": "Last steps, oldest first" });
  #engine = null;
  #current = null;
  #hovered = false;

  // open(step number): shows one step.
  constructor(open) {
    this.#open = open;
    this.#svg.append(this.#frame, this.#columns);
    const box = byId("timeline");
    box.append(this.#svg);
    box.addEventListener("pointerenter", () => (this.#hovered = true));
    box.addEventListener("pointerleave", () => {
      this.#hovered = false;
      hideTip();
      this.#release();
    });
    box.addEventListener("focusout", () => {
      hideTip();
      this.#release();
    });
    box.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.#draw()).observe(box);
  }

  // While somebody looks at a step the picture stands still; the rest of the page goes on.
  get #held() {
    return this.#hovered || this.#columns.contains(document.activeElement);
  }

  update(engine) {
    const first = this.#engine === null || this.#engine.steps.length === 0;
    const restarted = this.#engine !== null && this.#engine.epoch !== engine.epoch;
    this.#engine = this.#held && !first && !restarted ? { ...engine, steps: this.#engine.steps } : engine;
    setHidden(byId("held"), this.#engine === engine);
    this.#draw();
  }

  #release() {
    if (!this.#held) setHidden(byId("held"), true);
  }

  #draw() {
    const width = Math.floor(byId("timeline").clientWidth);
    if (this.#engine === null || width === 0) return;
    const ranks = this.#engine.world_size;
    const room = width - GUTTER;
    const shown = this.#engine.steps.slice(-Math.max(1, Math.floor(room / COLUMN_MIN)));
    const height = (ranks + 1) * (LANE + LANE_GAP) + AXIS;
    setAttribute(this.#svg, "width", width);
    setAttribute(this.#svg, "height", height);
    const top = scaleOf(shown.map((step) => step.duration_us));
    setHidden(byId("timeline-cut"), shown.every((step) => step.duration_us <= top));
    const column = Math.min(COLUMN_MAX, room / Math.max(shown.length, 1));
    const left = width - column * shown.length;
    setHidden(byId("timeline-none"), shown.length > 0);
    this.#drawFrame(ranks, width, top);
    const failed = this.#engine.failure?.step ?? null;
    const geometry = { ranks, top, column, left, height, failed };
    keyed(
      this.#columns,
      shown.map((step, index) => ({ step, index, last: index === shown.length - 1 })),
      ({ step }) => step.step,
      ({ step }) => this.#create(step.step),
      (node, item) => this.#place(node, item, geometry),
    );
    const nodes = [...this.#columns.children];
    const current = nodes.find((node) => node.dataset.key === this.#current) ?? nodes.at(-1);
    rove(nodes, current);
  }

  #drawFrame(ranks, width, top) {
    const lanes = [{ name: "coordinator" }];
    for (let rank = 0; rank < ranks; rank += 1) lanes.push({ name: `rank ${rank}` });
    keyed(
      this.#frame,
      lanes.map((lane, index) => ({ ...lane, index })),
      (lane) => lane.name,
      () => makeSvg("g", {}, makeSvg("line"), makeSvg("line"), makeSvg("text"), makeSvg("text")),
      (group, lane) => {
        const [floor, ceiling, name, scale] = group.children;
        const base = lane.index * (LANE + LANE_GAP) + LANE + 6;
        const line = (node, y, kind) => {
          setAttribute(node, "class", kind);
          setAttribute(node, "x1", GUTTER);
          setAttribute(node, "x2", width);
          setAttribute(node, "y1", y + 0.5);
          setAttribute(node, "y2", y + 0.5);
        };
        line(floor, base, "floor");
        line(ceiling, base - LANE, "ceiling");
        setText(name, lane.name);
        setAttribute(name, "y", base - LANE / 2 + 1);
        setText(scale, lane.index === 0 ? tick(top) : "");
        setAttribute(scale, "class", "scale");
        setAttribute(scale, "x", GUTTER - 8);
        setAttribute(scale, "y", base - LANE + 4);
      },
    );
  }

  #create(number) {
    const node = makeSvg("g", {
      class: "step",
      role: "button",
      onclick: () => this.#open(number),
      onpointerenter: (event) => this.#tip(event.currentTarget),
      onfocus: (event) => {
        this.#current = event.currentTarget.dataset.key;
        rove([...this.#columns.children], event.currentTarget);
        this.#tip(event.currentTarget);
      },
    });
    node.append(
      makeSvg("rect", { class: "hit" }),
      makeSvg("g", { class: "bars" }),
      makeSvg("text", { class: "number" }),
      makeSvg("circle", { class: "prefill-mark", r: 2 }),
    );
    return node;
  }

  #place(node, { step, index, last }, { ranks, top, column, left, height, failed }) {
    node.step = step;
    setAttribute(node, "data-failed", step.step === failed);
    setAttribute(node, "transform", `translate(${(left + index * column).toFixed(2)} 0)`);
    setAttribute(node, "aria-label", described(step) + (step.step === failed ? "; failed" : ""));
    const [hit, bars, number, mark] = node.children;
    setAttribute(hit, "width", column.toFixed(2));
    setAttribute(hit, "height", height);
    const inner = Math.max(2, column - Math.max(2, column * 0.28));
    const inset = (column - inner) / 2;
    keyed(
      bars,
      partsOf(step, ranks, top),
      (part) => part.key,
      (part) => makeSvg("rect", { "data-kind": part.kind }),
      (rect, part) => {
        setAttribute(rect, "x", inset.toFixed(2));
        setAttribute(rect, "width", inner.toFixed(2));
        setAttribute(rect, "y", (6 + part.lane * (LANE + LANE_GAP) + LANE - part.end).toFixed(2));
        setAttribute(rect, "height", (part.end - part.start).toFixed(2));
      },
    );
    const told = step.step % 10 === 0 && !last ? count(step.step) : "";
    setText(number, told);
    setAttribute(number, "x", (column / 2).toFixed(2));
    setAttribute(number, "y", height - 2);
    setAttribute(mark, "cx", (column / 2).toFixed(2));
    setAttribute(mark, "cy", height - 17);
    setAttribute(mark, "visibility", step.prefill_tokens > 0 ? null : "hidden");
  }

  #tip(node) {
    const { step } = node;
    const title = `Step ${count(step.step)} · ${micros(step.duration_us)} · ${work(step)}`;
    showTip(title, tipRows(step), node.querySelector(".hit").getBoundingClientRect());
  }

  #key(event) {
    const nodes = [...this.#columns.children];
    const at = nodes.indexOf(document.activeElement);
    if (at < 0) return;
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: nodes.length - 1 }[event.key];
    if (to !== undefined) nodes[Math.max(0, Math.min(nodes.length - 1, to))].focus();
    else if (event.key === "Enter" || event.key === " ") this.#open(nodes[at].step.step);
    else if (event.key === "Escape") nodes[at].blur();
    else return;
    event.preventDefault();
  }
}

// A few slow steps must not flatten all others: what is far above most is cut.
function scaleOf(durations) {
  const most = quantile(durations, 0.9) ?? 1;
  const wanted = Math.min(Math.max(1, ...durations), 1.4 * most);
  return niceCeiling(wanted, [1, 1.5, 2, 3, 4, 5, 6, 8, 10]);
}

// The rectangles of one step: lane, and start and end above the lane's floor in pixels.
function partsOf(step, ranks, top) {
  const scale = (us) => Math.min(LANE, (LANE * us) / top);
  const whole = scale(step.duration_us);
  const parts = [
    { key: "whole", kind: "whole", lane: 0, start: 0, end: whole },
    { key: "reduce", kind: "reduce", lane: 0, start: 0, end: scale(step.reduce_us) },
  ];
  if (step.duration_us > top) parts.push(lid(0));
  for (let rank = 0; rank < ranks; rank += 1) {
    const times = step.ranks[rank];
    let below = 0;
    for (const kind of ["compute", "wire", "wait"]) {
      const end = Math.min(LANE, below + scale(times?.[`${kind}_us`] ?? 0));
      parts.push({ key: `${rank} ${kind}`, kind, lane: rank + 1, start: below, end });
      below = end;
    }
    if (times && times.compute_us + times.wire_us + times.wait_us > top) parts.push(lid(rank + 1));
  }
  return parts;
}

// Of a bar that is taller than the scale.
function lid(lane) {
  return { key: `${lane} lid`, kind: "lid", lane, start: LANE, end: LANE + 2 };
}
