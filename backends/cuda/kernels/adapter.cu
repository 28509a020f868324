// Rows through the adapters that they chose: a warp for each output of a row.
#include "common.cuh"

// base may be null.
extern "C" __global__ void __launch_bounds__(256)
    adapter_linear(const float* x, const float* matrices, const u32* adapters, const float* base, float* y, u32 outputs,
                   u32 columns, const u32* rows) {
  u32 row = blockIdx.x, output = blockIdx.y * 8 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
  if (output >= outputs || !is_true(row, rows)) return;
  u32 adapter = adapters[row];
  float sum = 0.0f;
  if (adapter) {
    const float* weights = matrices + ((size_t)(adapter - 1) * outputs + output) * columns;
    for (u32 i = lane; i < columns; i += 32) sum += weights[i] * x[(size_t)row * columns + i];
    sum = warp_sum(sum);
  }
  size_t at = (size_t)row * outputs + output;
  if (lane == 0) y[at] = sum + (base == nullptr ? 0.0f : base[at]);
}
