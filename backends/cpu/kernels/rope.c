/* rope, in two instructions: the angles once per pass and set of frequencies, the turning for each matrix. */
#include "elementary.h"
#include "rows.h"

struct angles {
  const u32 *positions;
  const double *frequencies; /* scale · base^(−2i/rotary) */
  const float *factors;      /* or null */
  float *table;              /* [rows][cosines, then sines] */
  const u32 *rows;
  u32 half;
  float magnitude;
};

struct turn {
  const float *x, *table;
  float *y;
  const u32 *rows;
  u32 heads, width, rotary, interleaved;
};

void rope_angles(struct instruction *in, struct worker *me) {
  const struct angles a = *(const struct angles *)in->arguments;
  struct units got = {0, 0};
  for (u32 chunk = chunk_for(*a.rows, 1); take(in, *a.rows, chunk, &got);)
    for (u32 row = got.begin; row < got.end; row++) {
      float *cosines = a.table + row * 2 * a.half, *sines = cosines + a.half;
      for (u32 i = 0; i < a.half; i++) {
        double frequency = a.factors ? a.frequencies[i] / (double)a.factors[i] : a.frequencies[i];
        sine_cosine((double)a.positions[row] * frequency, sines + i, cosines + i);
        sines[i] *= a.magnitude, cosines[i] *= a.magnitude;
      }
    }
}

static void turn_halves(const struct turn *a, const float *x, const float *cosines, float *y) {
  u32 half = a->rotary / 2;
  const float *sines = cosines + half;
  FOR_VECTORS(i, half) {
    vec u = wasm_v128_load(x + i), v = wasm_v128_load(x + i + half);
    vec c = wasm_v128_load(cosines + i), s = wasm_v128_load(sines + i);
    wasm_v128_store(y + i, wasm_f32x4_sub(wasm_f32x4_mul(u, c), wasm_f32x4_mul(v, s)));
    wasm_v128_store(y + i + half, fma(u, s, wasm_f32x4_mul(v, c)));
  }
  FOR_REST(i, half) {
    float u = x[i], v = x[i + half];
    y[i] = u * cosines[i] - v * sines[i];
    y[i + half] = u * sines[i] + v * cosines[i];
  }
}

static void turn_pairs(const struct turn *a, const float *x, const float *cosines, float *y) {
  u32 half = a->rotary / 2;
  const float *sines = cosines + half;
  for (u32 i = 0; i < half; i++) {
    float u = x[2 * i], v = x[2 * i + 1];
    y[2 * i] = u * cosines[i] - v * sines[i];
    y[2 * i + 1] = u * sines[i] + v * cosines[i];
  }
}

void rope(struct instruction *in, struct worker *me) {
  const struct turn a = *(const struct turn *)in->arguments;
  u32 units = *a.rows * a.heads;
  struct units got = {0, 0};
  for (u32 chunk = chunk_for(units, ROW_LEAST(a.width)); take(in, units, chunk, &got);)
    for (u32 unit = got.begin; unit < got.end; unit++) {
      const float *x = a.x + unit * a.width, *cosines = a.table + unit / a.heads * a.rotary;
      float *y = a.y + unit * a.width;
      if (a.interleaved)
        turn_pairs(&a, x, cosines, y);
      else
        turn_halves(&a, x, cosines, y);
      for (u32 i = a.rotary; i < a.width; i++) y[i] = x[i];
    }
}
