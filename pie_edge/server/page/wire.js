// The protocol of /ws: requests with replies by their id, and what inferlets say, by instance.

import { decode, encode } from "./msgpack.js";
import { currentKey } from "./api.js";

const VERSION = 1;
const CREDIT = 2 ** 20;

export class Wire {
  #socket;
  #next = 1;
  #waiting = new Map();
  #listeners = new Map();
  #onState;
  #onClose;
  #refusal = "";

  // `onState` hears of the engine's state, `onClose` once when the connection has ended.
  constructor(onState, onClose) {
    this.#onState = onState;
    this.#onClose = onClose;
    const url = new URL("ws", location.href);
    url.protocol = url.protocol.replace("http", "ws");
    // A page can't give a WebSocket headers.
    if (currentKey()) url.searchParams.set("key", currentKey());
    this.#socket = new WebSocket(url);
    this.#socket.binaryType = "arraybuffer";
    this.#socket.onopen = () => this.#send({ op: "hello", version: VERSION, client: "page" });
    this.#socket.onmessage = ({ data }) => this.#take(decode(new Uint8Array(data)));
    this.#socket.onclose = ({ reason }) => this.#end(this.#refusal || reason);
  }

  // Runs a program; `listener` gets what comes of it, the message `ended` last. Its instance.
  async launch(what, input, listener) {
    const { instance } = await this.request({ op: "launch", input, credit: CREDIT, ...what }, (reply) => {
      this.#listeners.set(reply.instance, listener);
    });
    return instance;
  }

  // `before` gets the reply before the messages that come after it.
  request(message, before = () => {}) {
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject, before });
      this.#send({ ...message, id });
    });
  }

  #send(message) {
    this.#socket.send(encode(message));
  }

  #take(message) {
    if (message.op === "state" && message.id === 0) this.#onState(message);
    else if (message.id !== undefined) this.#reply(message);
    else if (message.instance !== undefined) this.#hear(message);
  }

  #reply(message) {
    const asked = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    if (message.op !== "refused") {
      asked?.before(message);
      asked?.resolve(message);
    } else if (asked) asked.reject(new Error(message.message));
    else {
      this.#refusal = message.message;
      this.#socket.close();
    }
  }

  #hear(message) {
    this.#listeners.get(message.instance)?.(message);
    if (message.op === "ended") this.#listeners.delete(message.instance);
    else {
      // What was shown makes room for more: characters of text, as Python counts them, or bytes.
      const amount = message.part?.length ?? [...(message.text ?? "")].length;
      if (amount) this.#send({ op: "credit", instance: message.instance, amount });
    }
  }

  #end(reason) {
    const error = new Error(reason || "the connection to the server has ended");
    for (const { reject } of this.#waiting.values()) reject(error);
    for (const listener of this.#listeners.values()) listener({ op: "ended", code: "disconnected", message: error.message });
    this.#waiting.clear();
    this.#listeners.clear();
    this.#onClose();
  }
}
