/* short_conv: y[t,c] = act(Σ_j weight[c,W−1−j] · x(n−j, c) + bias[c]); and tail_append, which keeps rows for later passes. */
#include "activations.h"
#include "rows.h"
#include "sequences.h"
#include "weights.h"

enum { STRIPS = 8, MOST_TAPS = 64 }; /* strips of columns a unit */

struct convolution {
  const float *x;
  const u8 *weight;
  const float *tail;
  struct places places;
  const float *bias; /* or null */
  float *y;
  const u32 *counts;
  u32 width, taps, length, slots, format, activation;
};

/* Eight columns of a row: `rows` are those that the taps meet, null before the context began. */
INLINE void strip_sums(const struct convolution *a, const u8 *weight, const float *const *rows, u32 column, vec *low, vec *high) {
  for (u32 tap = 0; tap < a->taps; tap++) {
    if (!rows[tap]) continue;
    vec w0, w1;
    load_dense(weight + tap * dense_column_bytes(a->format), a->format, &w0, &w1);
    *low = fma(wasm_v128_load(rows[tap] + column), w0, *low);
    *high = fma(wasm_v128_load(rows[tap] + column + 4), w1, *high);
  }
}

static void whole_strip(const struct convolution *a, const u8 *weight, const float *const *rows, u32 column, float *y) {
  vec low = ZERO, high = ZERO;
  if (a->bias) low = wasm_v128_load(a->bias + column), high = wasm_v128_load(a->bias + column + 4);
  strip_sums(a, weight, rows, column, &low, &high);
  wasm_v128_store(y + column, activate(low, a->activation));
  wasm_v128_store(y + column + 4, activate(high, a->activation));
}

/* The last columns, of which there are fewer than eight, through copies. */
static void part_strip(const struct convolution *a, const u8 *weight, const float *const *rows, u32 column, float *y) {
  float copied[MOST_TAPS][STRIP] = {0}, result[STRIP] = {0};
  const float *copies[MOST_TAPS];
  u32 count = a->width - column;
  for (u32 tap = 0; tap < a->taps; tap++) {
    copies[tap] = rows[tap] ? copied[tap] : 0;
    for (u32 i = 0; rows[tap] && i < count; i++) copied[tap][i] = rows[tap][column + i];
  }
  for (u32 i = 0; a->bias && i < count; i++) result[i] = a->bias[column + i];
  vec low = wasm_v128_load(result), high = wasm_v128_load(result + 4);
  strip_sums(a, weight, copies, 0, &low, &high);
  wasm_v128_store(result, activate(low, a->activation)), wasm_v128_store(result + 4, activate(high, a->activation));
  for (u32 i = 0; i < count; i++) y[column + i] = result[i];
}

static void convolve(const struct convolution *a, const struct sequence *s, u32 first, u32 end) {
  const float *rows[MOST_TAPS];
  for (u32 row = 0; row < s->rows; row++) {
    for (u32 tap = 0; tap < a->taps; tap++) {
      i32 at = (i32)(row + tap) - (i32)(a->taps - 1);
      bool begun = at >= 0 || s->start >= (u32)-at;
      rows[tap] = begun ? row_of(s, a->x, a->tail, a->length, a->width, at) : 0;
    }
    float *y = a->y + (s->first + row) * a->width;
    for (u32 strip = first; strip < end; strip++) {
      const u8 *weight = a->weight + strip * strip_bytes(a->format, a->taps);
      if (strip * STRIP + STRIP <= a->width)
        whole_strip(a, weight, rows, strip * STRIP, y);
      else
        part_strip(a, weight, rows, strip * STRIP, y);
    }
  }
}

void short_conv(struct instruction *in, struct worker *me) {
  const struct convolution a = *(const struct convolution *)in->arguments;
  u32 strips = divide_up(a.width, STRIP), total = a.counts[1] ? divide_up(strips, STRIPS) : 0;
  struct units got = {0, 0};
  for (u32 chunk = chunk_for(total, 1); take(in, total, chunk, &got);)
    for (u32 index = 0; index < a.counts[1]; index++) {
      struct sequence s = sequence_at(&a.places, index);
      if (s.home < a.slots) convolve(&a, &s, got.begin * STRIPS, min_u32(got.end * STRIPS, strips));
    }
}

struct tail {
  const float *x;
  struct places places;
  float *tail;
  const u32 *counts;
  u32 width, length, slots;
};

/* A unit is one of the last `length` rows of a sequence. */
void tail_append(struct instruction *in, struct worker *me) {
  const struct tail a = *(const struct tail *)in->arguments;
  u32 total = a.counts[1] * a.length;
  struct units got = {0, 0};
  for (u32 chunk = chunk_for(total, ROW_LEAST(a.width)); take(in, total, chunk, &got);)
    for (u32 unit = got.begin; unit < got.end; unit++) {
      struct sequence s = sequence_at(&a.places, unit / a.length);
      u32 last = unit % a.length; /* rows after it */
      if (last >= s.rows || s.home >= a.slots) continue;
      u32 row = s.rows - 1 - last, place = (s.start + row) % a.length;
      const float *x = a.x + (s.first + row) * a.width;
      __builtin_memcpy(a.tail + (s.home * a.length + place) * a.width, x, a.width * sizeof(float));
    }
}
