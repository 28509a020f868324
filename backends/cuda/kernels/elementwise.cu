// Kinds that take each value by itself: a block has 256 values of a row, columns go along x and rows along y.
#include "common.cuh"

#define COLUMN (blockIdx.x * blockDim.x + threadIdx.x)

extern "C" __global__ void __launch_bounds__(256)
    glu(const float* gate, const float* up, float* y, u32 width, u32 act, const u32* rows) {
  u32 row = blockIdx.y, column = COLUMN;
  if (column >= width || !is_true(row, rows)) return;
  size_t at = (size_t)row * width + column;
  y[at] = activated(act, gate[at]) * up[at];
}

extern "C" __global__ void __launch_bounds__(256)
    clamped_glu(const float* gate, const float* up, float* y, u32 width, float slope, float limit, const u32* rows) {
  u32 row = blockIdx.y, column = COLUMN;
  if (column >= width || !is_true(row, rows)) return;
  size_t at = (size_t)row * width + column;
  float g = fminf(gate[at], limit), u = fminf(fmaxf(up[at], -limit), limit);
  y[at] = g * sigmoid(slope * g) * (u + 1.0f);
}

extern "C" __global__ void __launch_bounds__(256)
    activation(const float* x, float* y, u32 width, u32 act, const u32* rows) {
  u32 row = blockIdx.y, column = COLUMN;
  if (column >= width || !is_true(row, rows)) return;
  size_t at = (size_t)row * width + column;
  y[at] = activated(act, x[at]);
}

extern "C" __global__ void __launch_bounds__(256) add(const float* x, const float* z, float* y, u32 width, const u32* rows) {
  u32 row = blockIdx.y, column = COLUMN;
  if (column >= width || !is_true(row, rows)) return;
  size_t at = (size_t)row * width + column;
  y[at] = x[at] + z[at];
}

// z may have one column, for all of x's.
extern "C" __global__ void __launch_bounds__(256)
    mul(const float* x, const float* z, float* y, u32 width, u32 z_width, const u32* rows) {
  u32 row = blockIdx.y, column = COLUMN;
  if (column >= width || !is_true(row, rows)) return;
  size_t at = (size_t)row * width + column;
  y[at] = x[at] * z[z_width == 1 ? row : at];
}

extern "C" __global__ void __launch_bounds__(256) scale(const float* x, float* y, u32 width, float factor, const u32* rows) {
  u32 row = blockIdx.y, column = COLUMN;
  if (column >= width || !is_true(row, rows)) return;
  size_t at = (size_t)row * width + column;
  y[at] = factor * x[at];
}

extern "C" __global__ void __launch_bounds__(256) softcap(const float* x, float* y, u32 width, float cap, const u32* rows) {
  u32 row = blockIdx.y, column = COLUMN;
  if (column >= width || !is_true(row, rows)) return;
  size_t at = (size_t)row * width + column;
  y[at] = cap * tanhf(x[at] / cap);
}

extern "C" __global__ void __launch_bounds__(256) store(const u32* x, u32* y, u32 width, const u32* rows) {
  u32 row = blockIdx.y, column = COLUMN;
  if (column >= width || !is_true(row, rows)) return;
  size_t at = (size_t)row * width + column;
  y[at] = x[at];
}

extern "C" __global__ void __launch_bounds__(256)
    gather_rows(const u32* x, const u32* chosen, u32* y, u32 width, const u32* rows) {
  u32 row = blockIdx.y, column = COLUMN;
  if (column >= width || !is_true(row, rows)) return;
  y[(size_t)row * width + column] = x[(size_t)chosen[row] * width + column];
}

extern "C" __global__ void __launch_bounds__(256)
    combine_experts(const float* x, const float* weights, float* y, u32 width, u32 chosen, const u32* rows) {
  u32 row = blockIdx.y, column = COLUMN;
  if (column >= width || !is_true(row, rows)) return;
  float sum = 0.0f;
  for (u32 j = 0; j < chosen; j++) sum += weights[row * chosen + j] * x[((size_t)row * chosen + j) * width + column];
  y[(size_t)row * width + column] = sum;
}

// Pages of `words` words. Targets are distinct and never sources.
extern "C" __global__ void __launch_bounds__(256)
    copy_pages(const u32* sources, const u32* targets, u32* state, u32 words, const u32* count) {
  u32 copy = blockIdx.y, word = COLUMN;
  if (word >= words || copy >= *count) return;
  state[(size_t)targets[copy] * words + word] = state[(size_t)sources[copy] * words + word];
}

// Tokens of pages that lie [outer, slots, inner words] each: out of the state into `held`, and back from there.
extern "C" __global__ void __launch_bounds__(256)
    copy_slots(const u32* slots, u32* state, u32* held, u32 outer, u32 page, u32 inner, u32 back, const u32* count) {
  u32 copy = blockIdx.y, word = COLUMN;
  if (word >= outer * inner || copy >= *count) return;
  u32 slot = slots[copy];
  size_t row = (size_t)(slot / page) * outer + word / inner;
  size_t at = (row * page + slot % page) * inner + word % inner, kept = (size_t)copy * outer * inner + word;
  if (back) state[at] = held[kept]; else held[kept] = state[at];
}
