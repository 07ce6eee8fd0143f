// The bar at the top, what is wrong, and the few numbers that tell how the engine does.

import { byId, setAttribute, setHidden, setText } from "./dom.js";
import { count, micros, plural, quantile, rate, seconds } from "./format.js";

const TONES = {
  serving: "good",
  starting: "warn",
  loading: "warn",
  restarting: "warn",
  stopping: "idle",
  ended: "idle",
  failed: "bad",
};
const RATE_WINDOW_S = 5;

// Tokens per second over the last seconds of the server's own clock.
class TokenRate {
  #samples = [];

  add(at, total) {
    const last = this.#samples.at(-1);
    if (last && (at < last.at || total < last.total)) this.#samples = [];
    this.#samples.push({ at, total });
    while (this.#samples.length > 2 && this.#samples[1].at <= at - RATE_WINDOW_S) {
      this.#samples.shift();
    }
    const first = this.#samples[0];
    return at > first.at ? (total - first.total) / (at - first.at) : null;
  }
}

export class Overview {
  #rate = new TokenRate();
  #phase = null;

  update(engine) {
    this.#bar(engine);
    this.#failure(engine);
    this.#numbers(engine);
  }

  #bar(engine) {
    setText(byId("model"), engine.model);
    const ranks = plural(engine.world_size, "rank", "ranks");
    setText(byId("shape"), `${engine.program} · ${ranks} · epoch ${engine.epoch}`);
    const phase = byId("phase");
    setText(phase, engine.phase);
    setAttribute(phase, "data-tone", TONES[engine.phase] ?? "idle");
    document.title = `${engine.phase} · ${engine.model} · Rankproof`;
    if (this.#phase !== null && this.#phase !== engine.phase) this.announce(`Now ${engine.phase}`);
    this.#phase = engine.phase;
  }

  #failure(engine) {
    const failure = engine.failure;
    setHidden(byId("failure"), failure === null);
    if (failure === null) return;
    const known = (value) => (value === null || value === undefined ? "none" : String(value));
    const who = failure.rank === null ? "The group" : `Rank ${failure.rank}`;
    const over = engine.phase === "restarting" || engine.phase === "serving";
    setText(byId("failure-title"), `${who} failed${over ? " in the last epoch" : ""}`);
    setText(byId("failure-code"), known(failure.code));
    setText(byId("failure-message"), known(failure.message));
    setText(byId("failure-rank"), known(failure.rank));
    setText(byId("failure-phase"), known(failure.phase));
    setText(byId("failure-step"), failure.step === null ? "between steps" : count(failure.step));
  }

  #numbers(engine) {
    const { limits, requests, steps } = engine;
    setText(byId("stat-rate"), rate(this.#rate.add(engine.uptime_s, engine.tokens_total)));
    setText(byId("stat-step"), micros(quantile(steps.map((step) => step.duration_us), 0.5)));
    const waiting = requests.filter((request) => request.state === "waiting").length;
    const running = requests.length - waiting;
    setText(byId("stat-requests"), `${count(running)} running, ${count(waiting)} waiting`);
    const held = engine.slots.filter((slot) => slot !== null).length;
    setText(byId("stat-slots"), `${count(held)} of ${count(limits.slots)}`);
    const pages = limits.pages - engine.pages_free;
    setText(byId("stat-pages"), `${count(pages)} of ${count(limits.pages)}`);
    setText(byId("stat-progress"), `${seconds(engine.progress_age_s)} ago`);
    const restarts = engine.restarts ? `, ${plural(engine.restarts, "restart", "restarts")}` : "";
    setText(byId("stat-up"), `${seconds(engine.uptime_s)}${restarts}`);
  }

  announce(text) {
    setText(byId("announce"), text);
  }
}

// The state of the connection: live, or since when the page shows old numbers.
export class LinkState {
  #seen = null;
  #retryAt = 0;
  #reason = null;
  #lost = false;

  constructor(retry) {
    byId("retry").addEventListener("click", retry);
    setInterval(() => this.#lost && this.#say(), 1000);
  }

  live() {
    this.#seen = performance.now();
    this.#lost = false;
    this.#show("live", "live");
  }

  lost(reason, retryMs) {
    this.#lost = true;
    this.#reason = reason;
    this.#retryAt = performance.now() + retryMs;
    this.#show("lost", "no answer");
    this.#say();
  }

  #show(state, text) {
    setAttribute(byId("link"), "data-state", state);
    setText(byId("link-text"), text);
    setHidden(byId("lost"), state === "live");
    document.body.classList.toggle("stale", state !== "live");
  }

  #say() {
    const now = performance.now();
    const age = this.#seen === null ? null : (now - this.#seen) / 1000;
    const shown =
      age === null ? "Nothing was heard of it yet." : `Shown is what it said ${seconds(age)} ago.`;
    const wait = Math.max(0, Math.ceil((this.#retryAt - now) / 1000));
    const again = wait > 0 ? ` Trying again in ${wait} s.` : " Trying again.";
    const reason = this.#reason === null ? "" : ` It said: ${this.#reason}.`;
    setText(byId("lost-text"), `${shown}${reason}${again}`);
  }
}
