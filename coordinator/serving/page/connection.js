// The one way to the server: adds the API key, asks for it on 401, and polls the engine.

const POLL_MS = 500;
const HIDDEN_MS = 5000;
const ANSWER_MS = 5000;
const BACKOFF_MAX_MS = 5000;

// An answer in OpenAI's error shape, or the status alone.
export class AnswerError extends Error {
  constructor(status, message, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

async function refused(answer) {
  let message = `HTTP ${answer.status}`;
  let code = null;
  try {
    const { error } = await answer.json();
    if (error && typeof error.message === "string") message = error.message;
    if (error && typeof error.code === "string") code = error.code;
  } catch {
    // No JSON: the status says what is known.
  }
  return new AnswerError(answer.status, message, code);
}

export class Connection {
  #key = null;
  #keyAsked = null;
  #askKey;

  // askKey(refusedBefore) -> promise of the key; called once however many requests wait for it.
  constructor(askKey) {
    this.#askKey = askKey;
  }

  // A successful Response. Throws AnswerError, or what fetch throws when nothing answers.
  // deadlineMs: for one answer, so it does not run while a person is asked for the key.
  async send(path, { deadlineMs = null, signal = null, ...options } = {}) {
    for (;;) {
      const used = this.#key;
      const headers = { ...options.headers };
      if (used !== null) headers.Authorization = `Bearer ${used}`;
      const signals = [signal, deadlineMs && AbortSignal.timeout(deadlineMs)].filter(Boolean);
      const answer = await fetch(path, {
        ...options,
        headers,
        cache: "no-store",
        signal: AbortSignal.any(signals),
      });
      if (answer.ok) return answer;
      if (answer.status !== 401) throw await refused(answer);
      await this.#newKey(used);
      signal?.throwIfAborted();
    }
  }

  async #newKey(used) {
    if (this.#key !== used) return;
    this.#keyAsked ??= this.#askKey(used !== null);
    this.#key = await this.#keyAsked;
    this.#keyAsked = null;
  }

  async json(path, options = {}) {
    return (await this.send(path, options)).json();
  }
}

// Calls onEngine(engine) with every answer; onLost(reason, retryMs) when there is none.
export class Poller {
  #connection;
  #listener;
  #timer = null;
  #failures = 0;
  #running = false;

  constructor(connection, listener) {
    this.#connection = connection;
    this.#listener = listener;
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.now();
    });
  }

  now() {
    clearTimeout(this.#timer);
    if (!this.#running) this.#poll();
  }

  async #poll() {
    this.#running = true;
    let wait = document.hidden ? HIDDEN_MS : POLL_MS;
    try {
      const engine = await this.#connection.json("/v1/engine", { deadlineMs: ANSWER_MS });
      this.#failures = 0;
      this.#listener.onEngine(engine);
    } catch (error) {
      this.#failures += 1;
      wait = Math.max(wait, Math.min(BACKOFF_MAX_MS, POLL_MS * 2 ** (this.#failures - 1)));
      this.#listener.onLost(error instanceof AnswerError ? error.message : null, wait);
    }
    this.#running = false;
    this.#timer = setTimeout(() => this.#poll(), wait);
  }
}
