// The server's figures, from /metrics, once a second while somebody looks.

import { ask } from "./api.js";

const LINE = /^pie_edge_(\w+?)(?:_total)?(?:\{(.*)\})? ([^ ]+)$/;
let before = null;

export function startFigures(every = 1000) {
  const look = async () => {
    if (document.visibilityState === "visible") {
      try {
        const answer = await ask("metrics");
        show(read(await answer.text(), performance.now() / 1000));
      } catch {
        // The server is busy, or stops; the state line says so.
      }
    }
    setTimeout(look, every);
  };
  void look();
}

// Sums over labels, and the buckets of histograms as [bound, count].
export function read(text, seconds) {
  const values = new Map();
  const buckets = new Map();
  for (const line of text.split("\n")) {
    const [, name, labels, number] = LINE.exec(line) ?? [];
    if (!name) continue;
    if (name.endsWith("_bucket")) {
      const bound = Number(/le="([^"]*)"/.exec(labels)[1].replace("+Inf", "Infinity"));
      const kind = name.slice(0, -"_bucket".length);
      if (!buckets.has(kind)) buckets.set(kind, new Map());
      buckets.get(kind).set(bound, (buckets.get(kind).get(bound) ?? 0) + Number(number));
    } else values.set(name, (values.get(name) ?? 0) + Number(number));
  }
  return { seconds, values, buckets };
}

export function quantile(buckets, share) {
  const sorted = [...(buckets ?? [])].sort(([one], [other]) => one - other);
  const total = sorted.at(-1)?.[1] ?? 0;
  if (!total) return null;
  let [low, below] = [0, 0];
  for (const [bound, count] of sorted) {
    if (count >= share * total && count > below) {
      return bound === Infinity ? low : low + ((bound - low) * (share * total - below)) / (count - below);
    }
    [low, below] = [bound, count];
  }
  return low;
}

function show(look) {
  const now = (name) => look.values.get(name) ?? 0;
  const grown = (name) => (before ? Math.max(now(name) - (before.values.get(name) ?? 0), 0) : 0);
  const seconds = before ? Math.max(look.seconds - before.seconds, 0.001) : 1;
  const steps = grown("step_calls_count");
  const growth = now("queue_growth_calls_per_second");
  const rows = [
    ["Requests", `${now("http_requests_active")}, ${now("inferlets")} inferlets`],
    ["Queue", `${now("generations_waiting")} requests, ${now("calls_waiting")} calls, ${signed(growth)} a second`],
    ["Batch", steps ? `${(grown("step_calls_sum") / steps).toFixed(1)} calls a step` : "no step"],
    ["Tokens", `${(grown("read_rows") / seconds).toFixed(1)} a second`],
    ["First token", times(look, "time_to_first_token_seconds")],
    ["Next token", times(look, "inter_token_seconds")],
    ["Pages", `${now("pages_used")} used, ${now("pages_cached")} cached, ${now("pages_free")} free`],
    ["Cache", `${now("prefix_hit_tokens")} tokens saved, ${now("evicted_pages")} pages evicted`],
    ["Device", `idle ${(100 * now("device_idle_share")).toFixed(0)} %`],
  ];
  const table = document.getElementById("table");
  table.replaceChildren(...rows.flatMap(([name, value]) => [cell("dt", name), cell("dd", value)]));
  const meter = document.getElementById("pages");
  meter.value = now("pages") ? now("pages_used") / now("pages") : 0;
  before = look;
}

function times(look, name) {
  const [half, most] = [0.5, 0.99].map((share) => quantile(look.buckets.get(name), share));
  return half === null ? "none yet" : `p50 ${time(half)}, p99 ${time(most)}`;
}

function time(seconds) {
  return seconds >= 1 ? `${seconds.toFixed(2)} s` : `${(1000 * seconds).toFixed(1)} ms`;
}

function signed(number) {
  return (number < 0 ? "−" : "+") + Math.abs(number).toFixed(1);
}

function cell(tag, value) {
  const made = document.createElement(tag);
  made.textContent = value;
  return made;
}
