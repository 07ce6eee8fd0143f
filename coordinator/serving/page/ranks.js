// One card per rank: what it does, how far it has loaded, what its memory holds.

import { byId, keyed, make, makeBar, setAttribute, setBar, setHidden, setText } from "./dom.js";
import { bytes, percent, seconds } from "./format.js";

const TONES = { ready: "good", loading: "warn", waiting: "idle", stopped: "bad", gone: "bad" };

// What the engine says of a rank in a word, as a sentence where the word alone says little.
const DOING = {
  failed: "failed first",
  gone: "its process has ended",
  idle: "idle, waits for a step",
  loading: "loads its weights",
  ready: "ready",
  stopped: "its process is stopped",
  wait: "has answered, waits",
  waiting: "has not connected yet",
};

function fact(name, kind) {
  const value = make("dd");
  const title = kind ? [make("i", { "data-kind": kind }), name] : [name];
  return { row: make("div", {}, make("dt", {}, ...title), value), value };
}

function createCard() {
  const parts = {
    name: make("h3"),
    phase: make("span", { class: "pill small" }),
    doing: make("p", { class: "doing" }),
    load: makeBar("load"),
    loadText: make("p", { class: "muted small-text" }),
    memory: makeBar("memory"),
    weights: fact("Weights", "weights"),
    state: fact("State", "state"),
    rest: fact("Other", "rest"),
    rss: fact("Resident"),
    pid: make("span", { class: "muted small-text" }),
    seen: make("span", { class: "muted small-text" }),
  };
  const card = make(
    "li",
    { class: "card rank" },
    make("div", { class: "rank-head" }, parts.name, parts.phase),
    parts.doing,
    make("div", { class: "load" }, parts.load, parts.loadText),
    parts.memory,
    make("dl", { class: "memory" }, parts.weights.row, parts.state.row, parts.rest.row, parts.rss.row),
    make("div", { class: "rank-foot" }, parts.pid, parts.seen),
  );
  card.parts = parts;
  return card;
}

function showLoad(parts, rank) {
  const loading = rank.phase === "loading" || rank.phase === "waiting";
  setHidden(parts.load.parentElement, !loading);
  if (!loading) return;
  const share = percent(rank.bytes_loaded, rank.bytes_due);
  const text = `Loaded ${bytes(rank.bytes_loaded)} of ${bytes(rank.bytes_due)}, ${share.toFixed(0)}%`;
  setBar(parts.load, text, [{ kind: "loaded", share }]);
  setText(parts.loadText, text);
}

// scale: the bytes of a full bar, the same for every rank so that bars compare.
function showMemory(parts, rank, scale) {
  // A process that is gone holds nothing, whatever it had allocated.
  const gone = rank.phase === "gone";
  const weights = gone ? 0 : (rank.weights_bytes ?? 0);
  const state = gone ? 0 : (rank.state_bytes ?? 0);
  const rest = rank.rss_bytes === null ? null : Math.max(0, rank.rss_bytes - weights - state);
  const text = gone
    ? `Memory of rank ${rank.rank}: none, its process has ended`
    : `Memory of rank ${rank.rank}: weights ${bytes(rank.weights_bytes)}, state ${bytes(rank.state_bytes)}, resident ${bytes(rank.rss_bytes)}`;
  setBar(parts.memory, text, [
    { kind: "weights", share: percent(weights, scale) },
    { kind: "state", share: percent(state, scale) },
    { kind: "rest", share: percent(rest ?? 0, scale) },
  ]);
  setText(parts.weights.value, gone ? bytes(null) : bytes(rank.weights_bytes));
  setText(parts.state.value, gone ? bytes(null) : bytes(rank.state_bytes));
  setText(parts.rest.value, bytes(rest));
  setText(parts.rss.value, bytes(rank.rss_bytes));
}

function held(rank) {
  return Math.max(rank.rss_bytes ?? 0, (rank.weights_bytes ?? 0) + (rank.state_bytes ?? 0));
}

export function showRanks(engine) {
  const failed = engine.failure?.rank ?? null;
  const scale = Math.max(1, ...engine.ranks.map(held)) * 1.04;
  keyed(
    byId("ranks"),
    engine.ranks,
    (rank) => rank.rank,
    createCard,
    (card, rank) => {
      const { parts } = card;
      setText(parts.name, `Rank ${rank.rank}`);
      setText(parts.phase, rank.phase);
      setAttribute(parts.phase, "data-tone", TONES[rank.phase] ?? "idle");
      setAttribute(card, "data-failed", rank.rank === failed && engine.phase !== "serving");
      setText(parts.doing, DOING[rank.doing] ?? rank.doing);
      showLoad(parts, rank);
      showMemory(parts, rank, scale);
      setText(parts.pid, rank.pid === null ? "no process" : `pid ${rank.pid}`);
      const seen = rank.last_seen_age_s;
      setText(parts.seen, seen === null ? "not seen yet" : `seen ${seconds(seen)} ago`);
    },
  );
}
