/* Mixtures of experts, but for their products: the router's choice, its order, and the weighted sum. */
#include "elementary.h"
#include "rows.h"

struct route {
  const float *logits;
  u32 *chosen;
  float *weights;
  const u32 *rows;
  u32 experts, count, normalised;
  float scale;
};

/* The largest logit that isn't chosen yet, of equal ones the first; some index even where they are no numbers. */
static u32 next_choice(const struct route *a, const float *logits, const u32 *chosen, u32 count) {
  u32 best = a->experts;
  for (u32 i = 0; i < a->experts; i++) {
    if (best < a->experts && !(logits[i] > logits[best])) continue;
    bool taken = false;
    for (u32 k = 0; k < count; k++) taken |= chosen[k] == i;
    if (!taken) best = i;
  }
  return best;
}

void route(struct instruction *in, struct worker *me) {
  const struct route a = *(const struct route *)in->arguments;
  struct units got = {0, 0};
  for (u32 chunk = chunk_for(*a.rows, 1); take(in, *a.rows, chunk, &got);)
    for (u32 row = got.begin; row < got.end; row++) {
      const float *logits = a.logits + row * a.experts;
      u32 *chosen = a.chosen + row * a.count;
      float *weights = a.weights + row * a.count, total = 0, all = 0;
      for (u32 k = 0; k < a.count; k++) chosen[k] = next_choice(&a, logits, chosen, k);
      for (u32 k = 0; k < a.count; k++) total += weights[k] = exp_of(logits[chosen[k]] - logits[chosen[0]]);
      for (u32 i = 0; !a.normalised && i < a.experts; i++) all += exp_of(logits[i] - logits[chosen[0]]);
      for (u32 k = 0; k < a.count; k++) weights[k] = weights[k] / (a.normalised ? total : all) * a.scale;
    }
}

struct sort {
  const u32 *chosen;
  u32 *order, *starts;
  const u32 *rows;
  u32 count, experts;
};

void sort_by_expert(struct instruction *in, struct worker *me) {
  const struct sort a = *(const struct sort *)in->arguments;
  u32 places = *a.rows * a.count;
  struct units got = {0, 0};
  while (take(in, 1, 1, &got)) {
    for (u32 i = 0; i <= a.experts; i++) a.starts[i] = 0;
    for (u32 i = 0; i < places; i++) a.starts[a.chosen[i] + 1]++;
    for (u32 i = 0; i < a.experts; i++) a.starts[i + 1] += a.starts[i];
    /* Filling an expert's places moves its start to the next one's. */
    for (u32 i = 0; i < places; i++) a.order[a.starts[a.chosen[i]]++] = i;
    for (u32 i = a.experts; i > 0; i--) a.starts[i] = a.starts[i - 1];
    a.starts[0] = 0;
  }
}

struct combine {
  const float *x, *weights;
  float *y;
  const u32 *rows;
  u32 width, count;
};

void combine_experts(struct instruction *in, struct worker *me) {
  const struct combine a = *(const struct combine *)in->arguments;
  struct units got = {0, 0};
  for (u32 chunk = chunk_for(*a.rows, ROW_LEAST(a.width)); take(in, *a.rows, chunk, &got);)
    for (u32 row = got.begin; row < got.end; row++) {
      const float *x = a.x + row * a.count * a.width, *weights = a.weights + row * a.count;
      float *y = a.y + row * a.width;
      FOR_VECTORS(i, a.width) {
        vec sum = ZERO;
        for (u32 k = 0; k < a.count; k++) sum = fma(wasm_f32x4_splat(weights[k]), wasm_v128_load(x + k * a.width + i), sum);
        wasm_v128_store(y + i, sum);
      }
      FOR_REST(i, a.width) {
        float sum = 0;
        for (u32 k = 0; k < a.count; k++) sum += weights[k] * x[k * a.width + i];
        y[i] = sum;
      }
    }
}
