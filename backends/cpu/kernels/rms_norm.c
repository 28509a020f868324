/* rms_norm and add_rms_norm. */
#include "rows.h"

struct norm {
  const float *x, *residual, *weight;
  float *sum, *y;
  const u32 *rows;
  u32 width;  /* of a part */
  u32 groups; /* parts of a row */
  float eps, offset;
};

static float squares(const float *x, u32 n) {
  vec total = ZERO, more = ZERO;
  u32 i = 0;
  for (; i + 8 <= n; i += 8) {
    vec a = wasm_v128_load(x + i), b = wasm_v128_load(x + i + 4);
    total = fma(a, a, total), more = fma(b, b, more);
  }
  float sum = sum_lanes(wasm_f32x4_add(total, more));
  for (; i < n; i++) sum += x[i] * x[i];
  return sum;
}

static void normalise(const struct norm *a, const float *x, float *y) {
  float factor = 1.0f / __builtin_sqrtf(squares(x, a->width) / (float)a->width + a->eps);
  vec factors = wasm_f32x4_splat(factor), offsets = wasm_f32x4_splat(a->offset);
  FOR_VECTORS(i, a->width) {
    vec weight = wasm_f32x4_add(wasm_v128_load(a->weight + i), offsets);
    wasm_v128_store(y + i, wasm_f32x4_mul(wasm_f32x4_mul(wasm_v128_load(x + i), factors), weight));
  }
  FOR_REST(i, a->width) y[i] = x[i] * factor * (a->weight[i] + a->offset);
}

void rms_norm(struct instruction *in, struct worker *me) {
  const struct norm a = *(const struct norm *)in->arguments;
  u32 parts = *a.rows * a.groups;
  struct units got = {0, 0};
  for (u32 chunk = chunk_for(parts, ROW_LEAST(a.width)); take(in, parts, chunk, &got);)
    for (u32 part = got.begin; part < got.end; part++) normalise(&a, a.x + part * a.width, a.y + part * a.width);
}

void add_rms_norm(struct instruction *in, struct worker *me) {
  const struct norm a = *(const struct norm *)in->arguments;
  struct units got = {0, 0};
  for (u32 chunk = chunk_for(*a.rows, ROW_LEAST(a.width)); take(in, *a.rows, chunk, &got);)
    for (u32 row = got.begin; row < got.end; row++) {
      const float *x = a.x + row * a.width, *residual = a.residual + row * a.width;
      float *sum = a.sum + row * a.width;
      FOR_VECTORS(i, a.width) wasm_v128_store(sum + i, wasm_f32x4_add(wasm_v128_load(x + i), wasm_v128_load(residual + i)));
      FOR_REST(i, a.width) sum[i] = x[i] + residual[i];
      normalise(&a, sum, a.y + row * a.width);
    }
}
