// One step in a panel: its swim-lanes, times per rank, and every frame with tensor statistics.

import { AnswerError } from "./connection.js";
import { byId, make, setHidden, setText } from "./dom.js";
import { bytes, count, micros, plural, real } from "./format.js";
import { Lanes } from "./lanes.js";

const KINDS = ["compute", "wire", "wait", "reduce"];
const COLUMNS = [
  ["#", (f) => count(f.index)],
  ["Rank", (f) => `${f.direction === "send" ? "→" : "←"} ${f.rank}`],
  ["Kind", (f) => f.kind],
  ["Phase", (f) => f.phase],
  ["Tensor", (f) => f.tensor],
  ["Shape", (f) => (f.shape ? f.shape.join(" × ") : null)],
  ["Metadata", (f) => bytes(f.metadata_bytes)],
  ["Payload", (f) => bytes(f.payload_bytes)],
  ["Min", (f) => f.statistics && real(f.statistics.min)],
  ["Max", (f) => f.statistics && real(f.statistics.max)],
  ["Mean", (f) => f.statistics && real(f.statistics.mean)],
  ["RMS", (f) => f.statistics && real(f.statistics.rms)],
  ["Zeros", (f) => f.statistics && count(f.statistics.zeros)],
  ["Non-finite", (f) => f.statistics && count(f.statistics.nonfinite)],
  ["First values", (f) => f.statistics && f.statistics.first.map(real).join("  ")],
];
// From here on a column holds numbers, and stands to the right.
const TEXT_COLUMNS = new Set(["Kind", "Phase", "Tensor", "Shape", "First values"]);

function headRow(names) {
  return make(
    "thead",
    {},
    make(
      "tr",
      {},
      ...names.map((name) =>
        make("th", { scope: "col", class: TEXT_COLUMNS.has(name) ? "left" : null }, name),
      ),
    ),
  );
}

function frameRow(frame) {
  const bad = frame.statistics !== null && frame.statistics.nonfinite > 0;
  const cells = COLUMNS.map(([name, text]) => {
    const value = text(frame);
    const shown = value === null || value === undefined || value === "" ? "" : String(value);
    return make("td", { class: TEXT_COLUMNS.has(name) ? "left" : null }, shown);
  });
  const direction = frame.direction === "send" ? "sent to" : "received from";
  cells[1].append(make("span", { class: "hidden-text" }, ` ${direction} rank ${frame.rank}`));
  return make("tr", { "data-bad": bad ? "true" : null }, ...cells);
}

export class StepPanel {
  #connection;
  #dialog = byId("step");
  #lanes = new Lanes((span) => this.#filter(span));
  #frames = [];
  #number = null;

  constructor(connection) {
    this.#connection = connection;
    byId("step-close").addEventListener("click", () => this.#dialog.close());
    byId("step-before").addEventListener("click", () => this.open(this.#number - 1));
    byId("step-after").addEventListener("click", () => this.open(this.#number + 1));
    byId("frames-all").addEventListener("click", () => this.#filter(null));
    this.#dialog.addEventListener("click", (event) => {
      if (event.target === this.#dialog) this.#dialog.close();
    });
  }

  async open(number) {
    if (number < 0) return;
    this.#number = number;
    setText(byId("step-title"), `Step ${count(number)}`);
    if (!this.#dialog.open) this.#dialog.showModal();
    try {
      const step = await this.#connection.json(`/v1/engine/steps/${number}`, { deadlineMs: 10000 });
      if (number === this.#number) this.#show(step);
    } catch (error) {
      if (number === this.#number) this.#problem(error);
    }
  }

  #show(step) {
    setHidden(byId("step-problem"), true);
    setHidden(byId("step-body"), false);
    const payload = step.frames.reduce((sum, frame) => sum + frame.payload_bytes, 0);
    const frames = plural(step.frames.length, "frame", "frames");
    setText(byId("step-text"), `${micros(step.duration_us)}, ${frames}, ${bytes(payload)} of payload`);
    this.#lanes.show(step);
    this.#totals(step);
    this.#frames = step.frames;
    this.#filter(null);
  }

  #problem(error) {
    const answered = error instanceof AnswerError;
    setText(byId("step-text"), "");
    setText(byId("step-problem"), answered ? error.message : "The server does not answer.");
    setHidden(byId("step-problem"), false);
    setHidden(byId("step-body"), true);
  }

  #totals(step) {
    const lanes = [...new Set(step.spans.map((span) => span.lane))].sort();
    const sum = (lane, kind) => {
      const own = step.spans.filter((span) => span.lane === lane && span.kind === kind);
      return own.length ? micros(own.reduce((all, span) => all + span.duration_us, 0)) : "";
    };
    byId("totals").replaceChildren(
      headRow(["Lane", ...KINDS]),
      make(
        "tbody",
        {},
        ...lanes.map((lane) =>
          make(
            "tr",
            {},
            make("th", { scope: "row" }, lane),
            ...KINDS.map((kind) => make("td", {}, sum(lane, kind))),
          ),
        ),
      ),
    );
  }

  // The frames of one span: those of its rank and phase. null: all of the step.
  #filter(span) {
    const rank = span === null ? null : /^rank (\d+)$/.exec(span.lane)?.[1];
    const shown = this.#frames.filter(
      (frame) =>
        span === null ||
        (frame.phase === span.phase && (rank === undefined || frame.rank === Number(rank))),
    );
    const all = plural(this.#frames.length, "frame", "frames");
    const some = `${count(shown.length)} of ${all}: ${span?.lane}, ${span?.phase}`;
    setText(byId("frames-text"), span === null ? all : some);
    setHidden(byId("frames-all"), span === null);
    const names = COLUMNS.map(([name]) => name);
    byId("frames").replaceChildren(
      make("table", { class: "numbers" }, headRow(names), make("tbody", {}, ...shown.map(frameRow))),
    );
  }
}
