// The k-th largest of each row: four digits of its key are found from the top.
#include "bins.cuh"

struct Params {
  u32 extent, x, argument, argument_rows, y;  // where each begins, and how many rows share an argument
  u32 is_signed;
};

extern "C" __global__ void __launch_bounds__(LOCAL, 1) kth_largest(Round round, Params p, const u32* x, const u32* argument, u32* y) {
  __shared__ u32 bins[BINS * COPIES];
  __shared__ u32 stretches[STRETCH_OF_BINS];
  u32 row = round.row();
  if (row == ~0u) return;
  u32 k = argument[p.argument + row / p.argument_rows], wanted = min(max(k, 1u), p.extent), prefix = 0;
  if (p.is_signed && (int)k < 1) wanted = 1;
  const u32* own = x + p.x + (size_t)row * p.extent;
  for (u32 shift = 32; shift; shift -= 8) {
    clear(bins);
    for (u32 i = threadIdx.x; i < p.extent; i += LOCAL) {
      u32 key = key_of(own[i], FLOATS);
      if ((key & known_bits(shift)) == prefix) atomicAdd(&bins[bin_place(digit_of(key, shift))], 1u);
    }
    prefix |= find_bin(bins, stretches, wanted) << (shift - 8);
  }
  if (threadIdx.x == 0) y[p.y + row] = word_of(prefix);
}
