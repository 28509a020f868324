/* layer_norm: the mean first, then the squares of what is left, so that nothing cancels. */
#include "rows.h"

struct layer_norm {
  const float *x, *weight, *bias; /* bias may be null */
  float *y;
  const u32 *rows;
  u32 width;
  float eps;
};

static float mean(const float *x, u32 n) {
  vec total = ZERO;
  FOR_VECTORS(i, n) total = wasm_f32x4_add(total, wasm_v128_load(x + i));
  float sum = sum_lanes(total);
  FOR_REST(i, n) sum += x[i];
  return sum / (float)n;
}

static void centre(const float *x, float middle, float *y, u32 n) {
  FOR_VECTORS(i, n) wasm_v128_store(y + i, wasm_f32x4_sub(wasm_v128_load(x + i), wasm_f32x4_splat(middle)));
  FOR_REST(i, n) y[i] = x[i] - middle;
}

static float variance(const float *y, u32 n) {
  vec total = ZERO;
  FOR_VECTORS(i, n) {
    vec value = wasm_v128_load(y + i);
    total = fma(value, value, total);
  }
  float sum = sum_lanes(total);
  FOR_REST(i, n) sum += y[i] * y[i];
  return sum / (float)n;
}

static void normalise(const struct layer_norm *a, const float *x, float *y) {
  centre(x, mean(x, a->width), y, a->width);
  float factor = 1.0f / __builtin_sqrtf(variance(y, a->width) + a->eps);
  for (u32 i = 0; i < a->width; i++) y[i] = y[i] * factor * a->weight[i] + (a->bias ? a->bias[i] : 0);
}

void layer_norm(struct instruction *in, struct worker *me) {
  const struct layer_norm a = *(const struct layer_norm *)in->arguments;
  struct units got = {0, 0};
  for (u32 chunk = chunk_for(*a.rows, ROW_LEAST(a.width)); take(in, *a.rows, chunk, &got);)
    for (u32 row = got.begin; row < got.end; row++) normalise(&a, a.x + row * a.width, a.y + row * a.width);
}
