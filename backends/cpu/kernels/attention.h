/* What kernels need that score queries against the keys of a page table: what a row sees, and how well it fits. */
#pragma once
#include "elementary.h"

enum { SPAN_KEYS = 256, MOST_SPAN_PAGES = SPAN_KEYS / 4 };

struct attention {
  const float *q, *keys;
  const u32 *key_positions, *positions, *row_index, *query_starts, *page_starts, *pages, *page_bits, *fresh_bits;
  const u32 *mask_starts, *mask; /* null without custom masks */
  const float *sinks;            /* a score for each head, or null */
  u32 heads, kv_heads, width, page_size, page_count, window;
  float scale, softcap;
  float *y;
  union {
    struct { /* attention.c */
      const float *values;
      float *partials;   /* [span][head]: results of single-row sequences */
      const u32 *counts; /* rows, sequences, … */
    };
    struct { /* attention_mass.c */
      const u32 *mass_rows, *mass_starts, *mass_layers;
      u32 layer, observed;
    };
  };
};

/* The sum of a head's weights relative to its largest score, and with its sink; `largest` becomes that of both. */
INLINE float with_sink(const struct attention *a, u32 head, float *largest, float total) {
  if (!a->sinks) return total;
  float seen = *largest, sink = a->sinks[head];
  *largest = seen > sink ? seen : sink;
  return total * exp_of(seen - *largest) + exp_of(sink - *largest);
}

/* The slots that a row sees, a bit each, by page of the span. */
struct sight {
  u32 slots[MOST_SPAN_PAGES];
};

INLINE u32 heads_per_group(const struct attention *a) { return a->heads / a->kv_heads; }
INLINE u32 span_pages(const struct attention *a) { return SPAN_KEYS / a->page_size; }
INLINE u32 span_count(const struct attention *a, u32 sequence) {
  return divide_up(a->page_starts[sequence + 1] - a->page_starts[sequence], span_pages(a));
}
INLINE const float *keys_of(const struct attention *a, u32 page, u32 group) {
  return a->keys + (page * a->kv_heads + group) * a->width * a->page_size;
}

static u32 inside_window(const struct attention *a, u32 page, u32 position) {
  u32 inside = 0;
  for (u32 slot = 0; slot < a->page_size; slot++) {
    int64_t distance = (int64_t)position - (int64_t)a->key_positions[page * a->page_size + slot];
    inside |= (u32)(distance < (int64_t)a->window) << slot;
  }
  return inside;
}

/* A row's words of its sequence's custom mask, one a page entry; null where it has none. */
static const u32 *mask_of(const struct attention *a, u32 sequence, u32 row) {
  if (!a->mask_starts || !a->mask_starts[sequence]) return 0;
  u32 entries = a->page_starts[sequence + 1] - a->page_starts[sequence];
  return a->mask + a->mask_starts[sequence] - 1 + (row - a->query_starts[sequence]) * entries;
}

/* What `row` sees of a span: slots that are written, and not of this pass or not after the row, and inside the window,
 * and allowed by a custom mask. */
static void look(const struct attention *a, u32 sequence, u32 span, u32 row, struct sight *sight) {
  u32 first = a->page_starts[sequence] + span * span_pages(a), end = a->page_starts[sequence + 1];
  u32 full = a->page_size == 32 ? ~0u : (1u << a->page_size) - 1, own = a->row_index[row];
  const u32 *allowed = mask_of(a, sequence, row);
  for (u32 i = 0, key = span * SPAN_KEYS; i < span_pages(a); i++, key += a->page_size) {
    u32 entry = first + i;
    sight->slots[i] = 0;
    if (entry >= end || a->pages[entry] >= a->page_count) continue;
    u32 seen = a->page_bits[entry] & full, until = own < key ? 0 : own - key + 1;
    if (until < a->page_size) seen &= ~a->fresh_bits[entry] | ((1u << until) - 1);
    if (allowed) seen &= allowed[entry - a->page_starts[sequence]];
    if (seen && a->window) seen &= inside_window(a, a->pages[entry], a->positions[row]);
    sight->slots[i] = seen;
  }
}

/* Products of two queries with the keys of a page: `y0`, `y1`, one a slot. Not inlined, like the other inner loops here:
 * whatever else is alive around them would push their sums out of registers. */
static __attribute__((noinline)) void page_products(const float *page, u32 page_size, const float *q0, const float *q1,
                                                    u32 width, float *y0, float *y1) {
  u32 stride = page_size * 4; /* floats from one vector of a key to the next */
  for (const float *last = page + stride; page != last; page += 16, y0 += 4, y1 += 4) {
    vec a0 = ZERO, a1 = ZERO, a2 = ZERO, a3 = ZERO, b0 = ZERO, b1 = ZERO, b2 = ZERO, b3 = ZERO;
    const float *k = page;
    for (u32 i = 0; i < width; i += 4, k += stride) {
      vec k0 = wasm_v128_load(k), k1 = wasm_v128_load(k + 4), k2 = wasm_v128_load(k + 8), k3 = wasm_v128_load(k + 12);
      vec x = wasm_v128_load(q0 + i), y = wasm_v128_load(q1 + i);
      a0 = fma(k0, x, a0), a1 = fma(k1, x, a1), a2 = fma(k2, x, a2), a3 = fma(k3, x, a3);
      b0 = fma(k0, y, b0), b1 = fma(k1, y, b1), b2 = fma(k2, y, b2), b3 = fma(k3, y, b3);
    }
    wasm_v128_store(y0, sum_each(a0, a1, a2, a3)), wasm_v128_store(y1, sum_each(b0, b1, b2, b3));
  }
}

static __attribute__((noinline)) void soften(const struct attention *a, float *scores) {
  vec cap = wasm_f32x4_splat(a->softcap);
  for (u32 slot = 0; slot < a->page_size; slot += 4)
    wasm_v128_store(scores + slot, wasm_f32x4_mul(cap, tanh4(wasm_f32x4_div(wasm_v128_load(scores + slot), cap))));
}

/* From products to scores: −∞ where the slot isn't seen. Returns the larger of `largest` and them. */
static vec adjust(const struct attention *a, float *scores, u32 seen, vec largest) {
  vec scale = wasm_f32x4_splat(a->scale), bits = wasm_i32x4_const(1, 2, 4, 8);
  vec never = wasm_f32x4_const_splat(-__builtin_inff());
  for (u32 slot = 0; slot < a->page_size; slot += 4)
    wasm_v128_store(scores + slot, wasm_f32x4_mul(wasm_v128_load(scores + slot), scale));
  if (a->softcap > 0) soften(a, scores);
  for (u32 slot = 0; slot < a->page_size; slot += 4) {
    vec mask = wasm_i32x4_eq(wasm_v128_and(wasm_i32x4_splat((i32)(seen >> slot)), bits), bits);
    vec score = wasm_v128_bitselect(wasm_v128_load(scores + slot), never, mask);
    wasm_v128_store(scores + slot, score);
    largest = larger(largest, score);
  }
  return largest;
}
