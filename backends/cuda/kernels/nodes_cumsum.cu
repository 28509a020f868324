// Running sums along an axis. A thread sums a stretch of it, learns what comes before, and goes through it again. Sums of
// floats keep what they round away (Neumaier), as if they were made in twice the precision.
#include "nodes.cuh"

struct Params {
  u32 extent, x, y, stride;  // where each begins, and the entries between neighbours of the axis
};
struct Sum {
  u32 total, loss;
};

__device__ __forceinline__ Sum plus(Sum sum, u32 word) {
  if (!IS_FLOAT) return {sum.total + word, 0};
  float total = __uint_as_float(sum.total), value = __uint_as_float(word), next = __fadd_rn(total, value);
  float lost = fabsf(total) >= fabsf(value) ? __fadd_rn(__fsub_rn(total, next), value) : __fadd_rn(__fsub_rn(value, next), total);
  float loss = __fadd_rn(__uint_as_float(sum.loss), lost);
  // Infinities lose nothing.
  return {__float_as_uint(next), is_infinite_or_nan(__float_as_uint(next)) ? 0 : __float_as_uint(loss)};
}
__device__ __forceinline__ u32 rounded(Sum sum) {
  return IS_FLOAT ? __float_as_uint(__fadd_rn(__uint_as_float(sum.total), __uint_as_float(sum.loss))) : sum.total;
}

extern "C" __global__ void __launch_bounds__(LOCAL, 1) cumsum(Round round, Params p, const u32* x, u32* y) {
  __shared__ u32 totals[LOCAL];
  __shared__ u32 losses[LOCAL];
  u32 row = round.row(), lane = threadIdx.x;
  if (row == ~0u) return;
  size_t base = (size_t)(row / p.stride) * p.stride * p.extent + row % p.stride;
  u32 stretch = (p.extent + LOCAL - 1) / LOCAL, begin = min(lane * stretch, p.extent), end = min(begin + stretch, p.extent);
  Sum sum = {0, 0};
  for (u32 i = begin; i < end; i++) sum = plus(sum, x[p.x + base + (size_t)i * p.stride]);
  totals[lane] = sum.total, losses[lane] = sum.loss;
  __syncthreads();
  sum = {0, 0};
  for (u32 i = 0; i < lane; i++) {
    sum = plus(sum, totals[i]);
    if (IS_FLOAT) sum = plus(sum, losses[i]);
  }
  for (u32 i = begin; i < end; i++) {
    sum = plus(sum, x[p.x + base + (size_t)i * p.stride]);
    y[p.y + base + (size_t)i * p.stride] = rounded(sum);
  }
}
