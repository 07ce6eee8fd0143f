// The page: polls the engine, and hands each answer to the parts that show it.

import { Connection, Poller } from "./connection.js";
import { byId, setText } from "./dom.js";
import { Occupancy } from "./occupancy.js";
import { LinkState, Overview } from "./overview.js";
import { Prompt } from "./prompt.js";
import { showRanks } from "./ranks.js";
import { Requests } from "./requests.js";
import { StepPanel } from "./step_panel.js";
import { themeButton } from "./theme.js";
import { Timeline } from "./timeline.js";

// The key that somebody types in; it is kept by the connection and nowhere else.
function askKey(refusedBefore) {
  const dialog = byId("key");
  const input = byId("key-value");
  if (refusedBefore) setText(byId("key-text"), "The server refused this key. Another one?");
  input.value = "";
  return new Promise((resolve) => {
    byId("key-form").addEventListener("submit", () => resolve(input.value), { once: true });
    // Nothing can be shown without a key, so Escape does not close it.
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.showModal();
  }).finally(() => (input.value = ""));
}

themeButton(byId("theme"));
const connection = new Connection(askKey);
const overview = new Overview();
const occupancy = new Occupancy();
const requests = new Requests(connection);
const prompt = new Prompt(connection);
const panel = new StepPanel(connection);
const timeline = new Timeline((step) => panel.open(step));

function onEngine(engine) {
  link.live();
  overview.update(engine);
  timeline.update(engine);
  showRanks(engine);
  requests.update(engine);
  occupancy.update(engine);
  prompt.update(engine);
}

const poller = new Poller(connection, {
  onEngine,
  onLost: (reason, retryMs) => link.lost(reason, retryMs),
});
const link = new LinkState(() => poller.now());
poller.now();
