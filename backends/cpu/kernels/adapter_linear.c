/* adapter_linear: each row times the matrix of its adapter, which few rows share: dot products, a row of the matrix each. */
#include "rows.h"

struct adapter_linear {
  const float *x, *matrices;
  const u32 *adapters;
  const float *base; /* may be null */
  float *y;
  const u32 *rows;
  u32 outputs, columns, count;
};

enum { BLOCK = 32 };

static float dot(const float *x, const float *w, u32 n) {
  vec total = ZERO;
  FOR_VECTORS(i, n) total = fma(wasm_v128_load(x + i), wasm_v128_load(w + i), total);
  float sum = sum_lanes(total);
  FOR_REST(i, n) sum += x[i] * w[i];
  return sum;
}

static void block_of(const struct adapter_linear *a, u32 row, u32 first) {
  u32 number = min_u32(a->adapters[row], a->count), end = min_u32(first + BLOCK, a->outputs);
  const float *x = a->x + row * a->columns, *base = a->base ? a->base + row * a->outputs : 0;
  float *y = a->y + row * a->outputs;
  for (u32 i = first; i < end; i++) y[i] = base ? base[i] : 0;
  if (!number) return;
  const float *matrix = a->matrices + (number - 1) * a->outputs * a->columns;
  for (u32 i = first; i < end; i++) y[i] += dot(x, matrix + i * a->columns, a->columns);
}

void adapter_linear(struct instruction *in, struct worker *me) {
  const struct adapter_linear a = *(const struct adapter_linear *)in->arguments;
  u32 blocks = divide_up(a.outputs, BLOCK), units = *a.rows * blocks;
  struct units got = {0, 0};
  for (u32 chunk = chunk_for(units, max_u32(1, 256 / a.columns)); take(in, units, chunk, &got);)
    for (u32 unit = got.begin; unit < got.end; unit++) block_of(&a, unit / blocks, unit % blocks * BLOCK);
}
