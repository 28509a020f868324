// Causal convolutions of columns over their sequences, and the tails that they read.
#include "weights.cuh"
#include "recurrent.cuh"

__device__ __forceinline__ float weight_at(const Packing& p, const uint4* codes, u32 row, u32 column) {
  size_t at = (((size_t)(row / ROWS) * p.items() + column / ITEM) * ROWS + row % ROWS) * ITEM + column % ITEM;
#if FORMAT == F16
  return half_to_float(((const u16*)codes)[at]);
#elif FORMAT == BF16
  return bf16_to_float(((const u16*)codes)[at]);
#else
  return ((const float*)codes)[at];
#endif
}

// A column of a row a thread; bias may be null.
extern "C" __global__ void __launch_bounds__(128)
    short_conv(Packing p, Spans spans, const float* x, const uint4* weight, const float* tail, const float* bias, float* y,
               u32 columns, u32 length, u32 act) {
  u32 row = blockIdx.x, column = blockIdx.y * blockDim.x + threadIdx.x;
  if (column >= columns || row >= spans.counts[0]) return;
  Sequence s(spans, sequence_of(row, spans.query_starts, spans.counts[1]));
  u32 place = s.start + row - s.first;
  float sum = bias == nullptr ? 0.0f : bias[column];
  for (u32 back = 0; back < p.columns && back <= place; back++) {
    float value = row - s.first >= back ? x[(size_t)(row - back) * columns + column]
                                        : tail[((size_t)s.home * length + (place - back) % length) * columns + column];
    sum += weight_at(p, weight, column, p.columns - 1 - back) * value;
  }
  y[(size_t)row * columns + column] = activated(act, sum);
}
