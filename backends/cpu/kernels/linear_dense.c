/* y = x · weightᵀ (+ bias) for dense weights, in float32: each result is summed column by column, in both forms. */
#include "experts.h"

/* One row of x against two strips: four chains of sums hide the latency of a multiply-add. */
INLINE void two_strips(u32 number, u32 columns, const u8 *first, const u8 *second, const u8 *x, vec *y) {
  u32 step = dense_column_bytes(number);
  vec y0 = ZERO, y1 = ZERO, y2 = ZERO, y3 = ZERO;
  for (u32 i = 0; i < columns; i++, first += step, second += step, x += 16) {
    vec w0, w1, w2, w3, value = wasm_v128_load(x);
    load_dense(first, number, &w0, &w1);
    load_dense(second, number, &w2, &w3);
    y0 = fma(w0, value, y0), y1 = fma(w1, value, y1), y2 = fma(w2, value, y2), y3 = fma(w3, value, y3);
  }
  y[0] = y0, y[1] = y1, y[2] = y2, y[3] = y3;
}

INLINE void few_rows(u32 number, const struct linear *a, struct units pairs) {
  u32 bytes = strip_bytes(number, a->columns), strips = divide_up(a->outputs, STRIP);
  for (u32 pair = pairs.begin; pair < pairs.end; pair++) {
    u32 second = min_u32(2 * pair + 1, strips - 1); /* a last strip without a partner is its own */
    for (u32 row = 0; row < *a->rows; row++) {
      vec y[4];
      const u8 *x = a->prepared + row * prepared_bytes(true, false, a->columns, 0);
      two_strips(number, a->columns, a->weight + 2 * pair * bytes, a->weight + second * bytes, x, y);
      store_strip(a, row, 2 * pair, y[0], y[1]);
      store_strip(a, row, second, y[2], y[3]);
    }
  }
}

static const float *open_strip(u32 number, const struct linear *a, const u8 *strip, float *scratch) {
  if (number == DENSE_F32) return (const float *)strip;
  for (u32 i = 0; i < a->columns; i++) {
    vec low, high;
    load_dense(strip + i * dense_column_bytes(number), number, &low, &high);
    wasm_v128_store(scratch + i * STRIP, low), wasm_v128_store(scratch + i * STRIP + 4, high);
  }
  return scratch;
}

static void tile_product(u32 columns, const float *w, const u8 *x, vec *sums) {
  vec a0 = ZERO, a1 = ZERO, a2 = ZERO, a3 = ZERO, a4 = ZERO, a5 = ZERO, a6 = ZERO, a7 = ZERO;
  for (const u8 *end = x + columns * 16; x != end; x += 16, w += STRIP) {
    vec w0 = wasm_v128_load(w), w1 = wasm_v128_load(w + 4), all = wasm_v128_load(x);
    vec one = SPLAT_LANE(all, 0), two = SPLAT_LANE(all, 1), three = SPLAT_LANE(all, 2), four = SPLAT_LANE(all, 3);
    a0 = fma(w0, one, a0), a1 = fma(w1, one, a1), a2 = fma(w0, two, a2), a3 = fma(w1, two, a3);
    a4 = fma(w0, three, a4), a5 = fma(w1, three, a5), a6 = fma(w0, four, a6), a7 = fma(w1, four, a7);
  }
  sums[0] = a0, sums[1] = a1, sums[2] = a2, sums[3] = a3, sums[4] = a4, sums[5] = a5, sums[6] = a6, sums[7] = a7;
}

static void many_rows(u32 number, const struct linear *a, struct units pairs, float *scratch) {
  u32 rows = *a->rows, bytes = strip_bytes(number, a->columns), end = min_u32(2 * pairs.end, divide_up(a->outputs, STRIP));
  for (u32 strip = 2 * pairs.begin; strip < end; strip++) {
    const float *w = open_strip(number, a, a->weight + strip * bytes, scratch);
    for (u32 tile = 0; tile < divide_up(rows, TILE); tile++) {
      vec sums[2 * TILE];
      tile_product(a->columns, w, a->prepared + tile * prepared_bytes(false, false, a->columns, 0), sums);
      store_tile(a, tile, rows, strip, sums);
    }
  }
}

static void product(const struct linear *a, struct units pairs, u8 *scratch) {
  if (!is_vector_form(*a->rows))
    many_rows(a->format, a, pairs, (float *)scratch);
  else if (a->format == DENSE_F32)
    few_rows(DENSE_F32, a, pairs);
  else if (a->format == DENSE_F16)
    few_rows(DENSE_F16, a, pairs);
  else
    few_rows(DENSE_BF16, a, pairs);
}

INLINE u32 pairs_of(const struct linear *a) { return divide_up(divide_up(a->outputs, STRIP), 2); }

void linear_dense(struct instruction *in, struct worker *me) {
  const struct linear a = *(const struct linear *)in->arguments;
  u32 pairs = *a.rows ? pairs_of(&a) : 0;
  struct units got = {0, 0};
  for (u32 chunk = chunk_for(pairs, 1); take(in, pairs, chunk, &got);) product(&a, got, me->scratch);
}

void expert_linear_dense(struct instruction *in, struct worker *me) {
  over_experts(in, me, pairs_of((const struct linear *)in->arguments), false, product);
}
