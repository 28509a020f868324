// Requests to the server this page came from. The key lives as long as the page, and only here.

let key = "";
let refused = () => {};

export function useKey(value) {
  key = value;
}

export function currentKey() {
  return key;
}

// `told` is called when the server asks for a key, or for another one.
export function whenKeyNeeded(told) {
  refused = told;
}

export async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (key) headers.authorization = `Bearer ${key}`;
  const answer = await fetch(path, { ...options, headers });
  if (answer.status === 401) refused();
  if (!answer.ok) throw new Error(await problem(answer));
  return answer;
}

async function problem(answer) {
  const told = await answer.text();
  try {
    return JSON.parse(told).error.message;
  } catch {
    return `${answer.status} ${answer.statusText}`;
  }
}

// The data of Server-Sent Events, as they come.
export async function* events(answer) {
  let rest = "";
  for await (const piece of chunks(answer.body.pipeThrough(new TextDecoderStream()))) {
    const blocks = (rest + piece).split(/\r?\n\r?\n/);
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart());
      if (data.length) yield data.join("\n");
    }
  }
}

// Streams can't be iterated in every browser.
async function* chunks(stream) {
  const reader = stream.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
