/* add, mul, scale, softcap, activation, glu, and clamped_glu: one value of the result from one value of each operand. */
#include "activations.h"
#include "rows.h"

enum { BLOCK = 128 }; /* values a unit */

struct elementwise {
  const float *x, *y;
  float *result;
  const u32 *rows;
  u32 width;
  u32 activation;
  float cap;   /* of softcap; the factor of scale; the limit of clamped_glu */
  float slope; /* of clamped_glu */
};

INLINE vec activation_value(const struct elementwise *a, vec x, vec unused, enum activation activation) {
  return activate(x, activation);
}

INLINE vec glu_value(const struct elementwise *a, vec x, vec y, enum activation activation) {
  return wasm_f32x4_mul(activate(x, activation), y);
}

INLINE vec add_value(const struct elementwise *a, vec x, vec y, enum activation unused) { return wasm_f32x4_add(x, y); }

INLINE vec mul_value(const struct elementwise *a, vec x, vec y, enum activation unused) { return wasm_f32x4_mul(x, y); }

INLINE vec scale_value(const struct elementwise *a, vec x, vec y, enum activation unused) {
  return wasm_f32x4_mul(wasm_f32x4_splat(a->cap), x);
}

INLINE vec softcap_value(const struct elementwise *a, vec x, vec y, enum activation unused) {
  vec cap = wasm_f32x4_splat(a->cap);
  return wasm_f32x4_mul(cap, tanh4(wasm_f32x4_div(x, cap)));
}

INLINE vec clamped_glu_value(const struct elementwise *a, vec x, vec y, enum activation unused) {
  vec limit = wasm_f32x4_splat(a->cap), one = wasm_f32x4_const_splat(1.0f);
  vec gate = wasm_f32x4_min(x, limit), up = wasm_f32x4_max(wasm_f32x4_min(y, limit), wasm_f32x4_neg(limit));
  vec grown = exp4(wasm_f32x4_mul(gate, wasm_f32x4_splat(-a->slope)));
  return wasm_f32x4_mul(wasm_f32x4_div(gate, wasm_f32x4_add(one, grown)), wasm_f32x4_add(up, one));
}

typedef vec value_of(const struct elementwise *, vec, vec, enum activation);

/* The matrix is taken as one long row. Its last values go through a padded copy. */
INLINE void over_all(struct instruction *in, value_of *value, enum activation activation) {
  const struct elementwise a = *(const struct elementwise *)in->arguments;
  u32 size = *a.rows * a.width, blocks = divide_up(size, BLOCK);
  struct units got = {0, 0};
  for (u32 chunk = chunk_for(blocks, 2); take(in, blocks, chunk, &got);) {
    u32 end = min_u32(got.end * BLOCK, size), i = got.begin * BLOCK;
    for (; i + 4 <= end; i += 4)
      wasm_v128_store(a.result + i, value(&a, wasm_v128_load(a.x + i), wasm_v128_load(a.y + i), activation));
    if (i < end) {
      float x[4] = {0}, y[4] = {0}, result[4];
      for (u32 k = i; k < end; k++) x[k - i] = a.x[k], y[k - i] = a.y[k];
      wasm_v128_store(result, value(&a, wasm_v128_load(x), wasm_v128_load(y), activation));
      for (u32 k = i; k < end; k++) a.result[k] = result[k - i];
    }
  }
}

void add(struct instruction *in, struct worker *me) { over_all(in, add_value, SILU); }

void mul(struct instruction *in, struct worker *me) { over_all(in, mul_value, SILU); }

/* Rows times a column of one. */
void mul_rows(struct instruction *in, struct worker *me) {
  const struct elementwise a = *(const struct elementwise *)in->arguments;
  struct units got = {0, 0};
  for (u32 chunk = chunk_for(*a.rows, ROW_LEAST(a.width)); take(in, *a.rows, chunk, &got);)
    for (u32 row = got.begin; row < got.end; row++) {
      const float *x = a.x + row * a.width;
      float *result = a.result + row * a.width;
      vec factor = wasm_f32x4_splat(a.y[row]);
      FOR_VECTORS(i, a.width) wasm_v128_store(result + i, wasm_f32x4_mul(wasm_v128_load(x + i), factor));
      FOR_REST(i, a.width) result[i] = x[i] * a.y[row];
    }
}

void scale(struct instruction *in, struct worker *me) { over_all(in, scale_value, SILU); }

void clamped_glu(struct instruction *in, struct worker *me) { over_all(in, clamped_glu_value, SILU); }

void softcap(struct instruction *in, struct worker *me) { over_all(in, softcap_value, SILU); }

INLINE void over_all_activated(struct instruction *in, value_of *value) {
  switch (((const struct elementwise *)in->arguments)->activation) {
    case SILU: over_all(in, value, SILU); break;
    case GELU_TANH: over_all(in, value, GELU_TANH); break;
    case GELU: over_all(in, value, GELU); break;
    case SIGMOID: over_all(in, value, SIGMOID); break;
    default: over_all(in, value, RELU);
  }
}

void activation(struct instruction *in, struct worker *me) { over_all_activated(in, activation_value); }

void glu(struct instruction *in, struct worker *me) { over_all_activated(in, glu_value); }
