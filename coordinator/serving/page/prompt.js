// A prompt of one's own: streams a completion, tells time to first token and tokens per second.

import { byId, setAttribute, setText } from "./dom.js";
import { count, plural, rate, seconds } from "./format.js";

// The data of server-sent events, as they arrive. A line may come in pieces.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data:")) yield line.slice(5).trim();
    }
  }
}

// fetch throws a TypeError when nobody answers, and a stream that is cut off does too.
function reasonOf(error) {
  return error instanceof TypeError ? "The server does not answer." : error.message;
}

// What one stream has brought so far.
class Run {
  started = performance.now();
  first = null;
  last = null;
  chunks = 0;
  usage = null;
  reason = null;
  complete = false;

  take(chunk) {
    this.usage = chunk.usage ?? this.usage;
    const choice = chunk.choices?.[0];
    if (choice === undefined) return "";
    this.reason = choice.finish_reason ?? this.reason;
    if (!choice.text) return "";
    this.last = performance.now();
    this.first ??= this.last;
    this.chunks += 1;
    return choice.text;
  }

  text() {
    if (this.first === null) return "Waiting for the first token…";
    const tokens = this.usage?.completion_tokens ?? this.chunks;
    const spent = (this.last - this.first) / 1000;
    const parts = [
      plural(tokens, "token", "tokens"),
      `first after ${seconds((this.first - this.started) / 1000)}`,
    ];
    if (tokens > 1 && spent > 0) parts.push(`${rate((tokens - 1) / spent)} tokens/s`);
    if (this.usage) parts.push(`prompt ${count(this.usage.prompt_tokens)}`);
    if (this.reason) parts.push(`ended by ${this.reason}`);
    return parts.join(" · ");
  }
}

export class Prompt {
  #connection;
  #abort = null;
  #model = null;

  constructor(connection) {
    this.#connection = connection;
    byId("prompt-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#run();
    });
    byId("prompt").addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        this.#run();
      }
    });
    byId("stop").addEventListener("click", () => this.#abort?.abort());
  }

  update(engine) {
    this.#model = engine.model;
  }

  #body() {
    return JSON.stringify({
      model: this.#model,
      prompt: byId("prompt").value,
      max_tokens: byId("max-tokens").valueAsNumber,
      temperature: byId("temperature").valueAsNumber,
      stream: true,
      stream_options: { include_usage: true },
    });
  }

  async #run() {
    if (this.#abort !== null || !byId("prompt-form").reportValidity()) return;
    this.#abort = new AbortController();
    this.#busy(true);
    byId("answer").replaceChildren();
    const run = new Run();
    this.#say(run.text());
    try {
      await this.#stream(run);
      this.#say(run.complete ? run.text() : "The stream broke off before its end.", !run.complete);
    } catch (error) {
      const stopped = this.#abort.signal.aborted;
      this.#say(stopped ? `Stopped · ${run.text()}` : reasonOf(error), !stopped);
    }
    this.#abort = null;
    this.#busy(false);
  }

  async #stream(run) {
    const answer = await this.#connection.send("/v1/completions", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: this.#body(),
      signal: this.#abort.signal,
    });
    for await (const data of events(answer.body)) {
      if (data === "[DONE]") {
        run.complete = true;
        return;
      }
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      this.#append(run.take(chunk));
      this.#say(run.text());
    }
  }

  // Follows the text, unless somebody scrolled back.
  #append(text) {
    if (text === "") return;
    const box = byId("answer");
    const follows = box.scrollHeight - box.scrollTop - box.clientHeight < 24;
    box.append(text);
    if (follows) box.scrollTop = box.scrollHeight;
  }

  #busy(busy) {
    const [send, stop] = [byId("send"), byId("stop")];
    const moves = busy ? document.activeElement === send : document.activeElement === stop;
    send.disabled = busy;
    stop.disabled = !busy;
    if (moves) (busy ? stop : send).focus();
    // Screen readers hear the answer and its numbers once it is there, not token by token.
    setAttribute(byId("answer-status"), "aria-busy", busy);
    setAttribute(byId("answer"), "aria-busy", busy);
  }

  #say(text, bad = false) {
    const status = byId("answer-status");
    setText(status, text);
    setAttribute(status, "data-tone", bad ? "bad" : null);
  }
}
