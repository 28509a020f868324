// Puts the page together: the connection, the key, and the parts.

import { ask, currentKey, useKey, whenKeyNeeded } from "./api.js";
import { startChat } from "./chat.js";
import { startFigures } from "./figures.js";
import { offer, startInferlets } from "./inferlets.js";
import { Wire } from "./wire.js";

const $ = (id) => document.getElementById(id);
const PAUSE = 2000;
let model = "";
let wire = null;

whenKeyNeeded(() => {
  $("key-form").hidden = false;
  tell(currentKey() ? "The server doesn't take this key." : "The server wants an API key.");
});

$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey($("key").value);
  $("key-form").hidden = true;
  void connect();
});

startChat(() => model);
startInferlets(() => wire);
startFigures();
void connect();

// Asked by HTTP first, because a WebSocket doesn't say why it was refused.
async function connect() {
  try {
    const { data } = await (await ask("v1/models")).json();
    model = data[0]?.id ?? "";
    $("key-form").hidden = true;
  } catch (error) {
    if ($("key-form").hidden) {
      tell(error.message);
      setTimeout(connect, PAUSE);
    }
    return;
  }
  wire = new Wire(heard, () => {
    wire = null;
    tell("The connection to the server has ended.");
    setTimeout(connect, PAUSE);
  });
}

function heard(state) {
  if (state.phase === "ready") {
    model = state.model.name;
    offer(state.programs);
    tell(`${state.model.name} on ${state.model.backend} (${state.model.device})`);
  } else if (state.phase === "failed") tell(state.message);
  else tell(state.total ? `${state.what}: ${Math.floor((100 * state.done) / state.total)} %` : state.what || "Loading…");
}

function tell(text) {
  $("state").textContent = text;
}
