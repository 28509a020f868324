// Runs an inferlet and shows what it says. Its words are text, never markup.

const $ = (id) => document.getElementById(id);
const LONGEST = 1_000_000;
let running = null;

export function startInferlets(wire) {
  $("program").addEventListener("change", () => ($("source-box").hidden = $("program").value !== ""));
  $("inferlet-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!running) void run(wire());
  });
  $("end").addEventListener("click", () => {
    running?.wire.request({ op: "terminate", instance: running.instance }).catch(() => {});
  });
}

export function offer(programs) {
  const select = $("program");
  const chosen = select.value;
  const own = select.options[0];
  select.replaceChildren(own, ...programs.map((name) => new Option(name, name)));
  if (programs.includes(chosen)) select.value = chosen;
  $("source-box").hidden = select.value !== "";
}

async function run(wire) {
  const output = $("output");
  output.replaceChildren();
  $("run").disabled = true;
  try {
    if (!wire) throw new Error("there is no connection to the server");
    const input = object($("input").value);
    const program = $("program").value;
    const what = program ? { program } : { source: $("source").value };
    const ended = new Promise((resolve) => {
      void launch(wire, what, input, resolve).catch((error) => resolve({ op: "ended", message: error.message }));
    });
    finish(await ended);
  } catch (error) {
    say(error.message);
  } finally {
    running = null;
    $("run").disabled = false;
    $("end").disabled = true;
  }
}

async function launch(wire, what, input, resolve) {
  const instance = await wire.launch(what, input, (message) => {
    if (message.op === "ended") resolve(message);
    else say(message.op === "filepart" ? `[file ${message.name}: ${message.part.length} bytes]\n` : message.text);
  });
  running = { wire, instance };
  $("end").disabled = false;
}

function finish(ended) {
  if (ended.result !== null && ended.result !== undefined) say(`\n${JSON.stringify(JSON.parse(ended.result), null, 2)}`);
  else say(`\n${ended.traceback || ended.message}`);
}

function say(text) {
  const output = $("output");
  output.append(text);
  while (output.textContent.length > LONGEST && output.childNodes.length > 1) output.firstChild.remove();
  output.scrollTop = output.scrollHeight;
}

function object(text) {
  let value;
  try {
    value = JSON.parse(text || "{}");
  } catch (error) {
    throw new Error(`The input is no JSON: ${error.message}`);
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw new Error("The input is no JSON object.");
  return JSON.stringify(value);
}
