// The swim-lanes of one step: time from left to right, a lane for the coordinator and each rank.

import { byId, make, makeSvg, rove, setText } from "./dom.js";
import { micros, niceCeiling, tick } from "./format.js";

const GUTTER = 84;
const LANE = 26;
const LANE_GAP = 8;
const TOP = 22;
const ZOOM_MAX = 64;
const TICK_PX = 110;

function laneOrder(spans) {
  const rankOf = (lane) => Number(/^rank (\d+)$/.exec(lane)?.[1] ?? -1);
  return [...new Set(spans.map((span) => span.lane))].sort((a, b) => rankOf(a) - rankOf(b));
}

function told(span) {
  const parts = [span.lane, span.kind, span.phase, micros(span.duration_us)];
  return `${parts.filter(Boolean).join(" · ")}, from ${micros(span.start_us)}`;
}

export class Lanes {
  #choose;
  #spans = [];
  #duration = 0;
  #zoom = 1;

  // choose(span): somebody wants the frames of this span.
  constructor(choose) {
    this.#choose = choose;
    byId("zoom-in").addEventListener("click", () => this.#scale(2));
    byId("zoom-out").addEventListener("click", () => this.#scale(0.5));
    new ResizeObserver(() => this.#draw()).observe(byId("lanes"));
  }

  show(step) {
    this.#spans = step.spans.toSorted((a, b) => a.start_us - b.start_us);
    const ends = this.#spans.map((span) => span.start_us + span.duration_us);
    this.#duration = Math.max(1, step.duration_us, ...ends);
    this.#zoom = 1;
    setText(byId("span-text"), "Arrow keys go through the spans; Enter or a click shows its frames below.");
    this.#draw();
  }

  #scale(factor) {
    const box = byId("lanes");
    const middle = (box.scrollLeft + box.clientWidth / 2) / Math.max(1, box.scrollWidth);
    this.#zoom = Math.max(1, Math.min(ZOOM_MAX, this.#zoom * factor));
    this.#draw();
    box.scrollLeft = middle * box.scrollWidth - box.clientWidth / 2;
  }

  #draw() {
    const box = byId("lanes");
    const room = box.clientWidth - GUTTER - 8;
    if (room <= 0 || this.#spans.length === 0) {
      box.replaceChildren(
        ...(this.#spans.length ? [] : [make("p", { class: "none" }, "No times were kept of this step.")]),
      );
      return;
    }
    const focused = [...box.querySelectorAll(".span")].indexOf(document.activeElement);
    const lanes = laneOrder(this.#spans);
    const width = room * this.#zoom;
    const height = TOP + lanes.length * (LANE + LANE_GAP);
    const names = makeSvg("svg", { class: "lane-names", width: GUTTER, height, "aria-hidden": "true" });
    lanes.forEach((lane, index) => {
      const text = makeSvg("text", { x: 0, y: TOP + index * (LANE + LANE_GAP) + LANE / 2 + 4 });
      setText(text, lane);
      names.append(text);
    });
    const chart = makeSvg("svg", { class: "lane-chart", width: width + 8, height });
    chart.append(this.#axis(width, height), this.#bars(lanes, width));
    chart.addEventListener("keydown", (event) => this.#key(event, lanes));
    box.replaceChildren(names, chart);
    const nodes = [...chart.querySelectorAll(".span")];
    rove(nodes, nodes[Math.max(0, focused)]);
    if (focused >= 0) nodes[focused].focus();
  }

  #axis(width, height) {
    const axis = makeSvg("g", { class: "axis", "aria-hidden": "true" });
    const every = niceCeiling((this.#duration * TICK_PX) / width);
    for (let at = 0; at <= this.#duration; at += every) {
      const x = Math.round((at / this.#duration) * width) + 0.5;
      const text = makeSvg("text", { x: x + 4, y: 12 });
      setText(text, tick(at));
      axis.append(makeSvg("line", { x1: x, x2: x, y1: 0, y2: height }));
      if (x < width - 30) axis.append(text);
    }
    return axis;
  }

  #bars(lanes, width) {
    const group = makeSvg("g", { role: "group", "aria-label": "Spans by time" });
    for (const span of this.#spans) {
      const start = (span.start_us / this.#duration) * width;
      const length = (span.duration_us / this.#duration) * width;
      const bar = makeSvg("rect", {
        class: "span",
        role: "button",
        "aria-label": told(span),
        "data-kind": span.kind,
        x: start.toFixed(2),
        y: TOP + lanes.indexOf(span.lane) * (LANE + LANE_GAP),
        width: Math.max(1, length - 0.5).toFixed(2),
        height: LANE,
        rx: length > 6 ? 2 : 0,
        onclick: () => this.#choose(span),
        onpointerenter: () => setText(byId("span-text"), told(span)),
        onfocus: () => setText(byId("span-text"), told(span)),
      });
      bar.span = span;
      group.append(bar);
    }
    return group;
  }

  // Left and right: the neighbour in the lane. Up and down: what the next lane did at that time.
  #key(event, lanes) {
    const nodes = [...byId("lanes").querySelectorAll(".span")];
    const node = document.activeElement;
    const { span } = node;
    if (span === undefined) return;
    const own = nodes.filter((other) => other.span.lane === span.lane);
    const at = own.indexOf(node);
    const across = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    let next = { ArrowLeft: own[at - 1], ArrowRight: own[at + 1], Home: own[0], End: own.at(-1) }[event.key];
    if (across !== undefined) {
      const lane = lanes[lanes.indexOf(span.lane) + across];
      const there = nodes.filter((other) => other.span.lane === lane);
      next = there.findLast((other) => other.span.start_us <= span.start_us) ?? there[0];
    }
    if (event.key === "Enter" || event.key === " ") this.#choose(span);
    else if (next !== undefined) {
      rove(nodes, next);
      next.focus();
      next.scrollIntoView({ block: "nearest", inline: "nearest" });
    } else if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
  }
}
