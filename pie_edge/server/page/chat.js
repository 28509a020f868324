// A conversation through /v1/chat/completions. What the model says is text, never markup.

import { ask, events } from "./api.js";

const $ = (id) => document.getElementById(id);
let messages = [];
let running = null;

export function startChat(model) {
  $("chat-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!running) void send(model);
  });
  $("prompt").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      $("chat-form").requestSubmit();
    }
  });
  $("stop").addEventListener("click", () => running?.abort());
  $("anew").addEventListener("click", () => {
    running?.abort();
    messages = [];
    $("messages").replaceChildren();
    $("prompt").focus();
  });
}

async function send(model) {
  const asked = $("prompt").value;
  if (!asked.trim()) return;
  $("prompt").value = "";
  const conversation = messages;
  conversation.push({ role: "user", content: asked });
  bubble("user").append(asked);
  const answer = bubble("assistant");
  const controller = busy(new AbortController());
  try {
    const text = await streamed(request(model(), conversation), controller.signal, answer);
    conversation.push({ role: "assistant", content: text });
  } catch (error) {
    if (error.name === "AbortError") conversation.push({ role: "assistant", content: said(answer) });
    else {
      conversation.pop();
      bubble("error").append(error.message);
      if (!said(answer)) answer.remove();
    }
  } finally {
    if (running === controller) busy(null);
  }
}

function request(model, conversation) {
  const body = { model, messages: conversation, stream: true, max_tokens: Number($("max-tokens").value) || 512 };
  if ($("temperature").value !== "") body.temperature = Number($("temperature").value);
  return { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
}

async function streamed(options, signal, answer) {
  const [thought, words] = answer.children;
  for await (const data of events(await ask("v1/chat/completions", { ...options, signal }))) {
    if (data === "[DONE]") break;
    const { choices = [], error } = JSON.parse(data);
    if (error) throw new Error(error.message);
    const delta = choices[0]?.delta ?? {};
    const below = $("messages").scrollHeight - $("messages").scrollTop - $("messages").clientHeight;
    thought.append(delta.reasoning_content ?? delta.reasoning ?? "");
    words.append(delta.content ?? "");
    // Whoever has scrolled up to read isn't taken away from it.
    if (below < 40) $("messages").scrollTop = $("messages").scrollHeight;
  }
  return said(answer);
}

function said(answer) {
  return answer.children[1].textContent;
}

function bubble(kind) {
  const made = document.createElement("div");
  made.className = `message ${kind}`;
  if (kind === "assistant") {
    const thought = document.createElement("span");
    thought.className = "thought";
    made.append(thought, document.createElement("span"));
  }
  $("messages").append(made);
  $("messages").scrollTop = $("messages").scrollHeight;
  return made;
}

function busy(controller) {
  running = controller;
  $("send").disabled = controller !== null;
  $("stop").disabled = controller === null;
  return controller;
}
