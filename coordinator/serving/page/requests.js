// The live requests. Cancel takes effect after a few seconds in which the same button undoes it.

import { AnswerError } from "./connection.js";
import { byId, keyed, make, makeBar, setAttribute, setBar, setHidden, setText } from "./dom.js";
import { count, percent, plural } from "./format.js";

const GRACE_S = 3;
const ANSWER_MS = 5000;

export class Requests {
  #connection;
  #ending = new Map();

  constructor(connection) {
    this.#connection = connection;
  }

  update(engine) {
    const live = new Set(engine.requests.map((request) => request.id));
    for (const [id, ending] of this.#ending) {
      if (!live.has(id)) this.#forget(id, ending);
    }
    const waiting = engine.requests.filter((request) => request.state === "waiting").length;
    setText(byId("requests-text"), waiting ? `${count(waiting)} waiting` : "");
    setHidden(byId("requests-none"), engine.requests.length > 0);
    keyed(
      byId("requests"),
      engine.requests,
      (request) => request.id,
      (request) => this.#create(request.id),
      (row, request) => this.#show(row, request),
    );
  }

  #create(id) {
    const parts = {
      name: make("span", { class: "request-name" }),
      state: make("span", { class: "pill small" }),
      cancel: make("button", { type: "button", class: "small", onclick: () => this.#press(id) }),
      prefill: makeBar("prefill"),
      prefillText: make("span", { class: "numbers" }),
      decode: makeBar("decode"),
      decodeText: make("span", { class: "numbers" }),
      problem: make("p", { class: "problem", role: "alert", hidden: "" }),
    };
    const line = (name, bar, text) =>
      make("div", { class: "progress" }, make("span", { class: "muted" }, name), bar, text);
    const row = make(
      "li",
      {},
      make("div", { class: "request-head" }, parts.name, parts.state, parts.cancel),
      line("prefill", parts.prefill, parts.prefillText),
      line("decode", parts.decode, parts.decodeText),
      parts.problem,
    );
    row.parts = parts;
    return row;
  }

  #show(row, request) {
    const { parts } = row;
    setText(parts.name, `Request ${request.id}`);
    setText(parts.state, request.state);
    setAttribute(parts.state, "data-tone", request.state === "running" ? "good" : "idle");
    // A request that is being released has let go of its numbers: they are null.
    const prefilled = Math.min(request.computed_tokens, request.prompt_tokens);
    const progress = (bar, text, name, done, all) => {
      setText(text, `${count(done)} / ${count(all)}`);
      setBar(bar, `${name} ${count(done)} of ${plural(all, "token", "tokens")}`, [
        { kind: name, share: percent(done, all) },
      ]);
    };
    progress(parts.prefill, parts.prefillText, "prefill", prefilled, request.prompt_tokens);
    progress(parts.decode, parts.decodeText, "decode", request.completion_tokens, request.max_tokens);
    this.#showEnding(row, request.id);
  }

  #showEnding(row, id) {
    const { cancel, problem } = row.parts;
    const ending = this.#ending.get(id);
    const told = ending?.left > 0 ? `Undo cancel, ${ending.left} s` : "Cancelling…";
    setText(cancel, ending === undefined || ending.problem ? "Cancel" : told);
    const action = ending === undefined || ending.problem ? "Cancel" : "Undo the cancel of";
    setAttribute(cancel, "aria-label", ending?.left === 0 ? null : `${action} request ${id}`);
    setAttribute(cancel, "aria-disabled", ending?.left === 0 && !ending.problem);
    setAttribute(row, "data-ending", ending !== undefined && !ending.problem);
    setHidden(problem, !ending?.problem);
    setText(problem, ending?.problem ?? "");
  }

  #press(id) {
    const ending = this.#ending.get(id);
    if (ending !== undefined && !ending.problem) {
      if (ending.left > 0) this.#forget(id, ending);
    } else {
      const started = { left: GRACE_S, problem: null, timer: null };
      started.timer = setInterval(() => this.#tick(id, started), 1000);
      this.#ending.set(id, started);
    }
    this.#refresh(id);
  }

  #tick(id, ending) {
    ending.left -= 1;
    if (ending.left === 0) {
      clearInterval(ending.timer);
      this.#cancel(id, ending);
    }
    this.#refresh(id);
  }

  async #cancel(id, ending) {
    try {
      const name = await this.#nameOf(id);
      await this.#connection.send(`/v1/requests/${encodeURIComponent(name)}`, { method: "DELETE" });
    } catch (error) {
      // It may have ended by itself meanwhile; then nothing is left to say.
      if (error instanceof AnswerError && error.status === 404) return;
      ending.problem = `Not cancelled: ${error.message}`;
      this.#refresh(id);
    }
  }

  // The engine numbers requests; clients know them by the name of the call that made them.
  async #nameOf(id) {
    const live = await this.#connection.json("/v1/requests", { deadlineMs: ANSWER_MS });
    const found = live.data.find((call) => call.choices.some((one) => one.request_id === id));
    if (found === undefined) throw new Error("it did not come over HTTP, or has ended");
    return found.id;
  }

  #forget(id, ending) {
    clearInterval(ending.timer);
    this.#ending.delete(id);
  }

  #refresh(id) {
    const row = [...byId("requests").children].find((child) => child.dataset.key === String(id));
    if (row) this.#showEnding(row, id);
  }
}
