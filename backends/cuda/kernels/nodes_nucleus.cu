// The largest entry of each row down to which the entries, likeliest first, have probability p: four digits of its key are
// found from the top, by the probability that each digit holds.
#include "bins.cuh"

struct Params {
  u32 extent, x, argument, argument_rows, y;  // where each begins, and how many rows share an argument
  float one;                                  // what a weight of 1 counts
};

extern "C" __global__ void __launch_bounds__(LOCAL, 1) nucleus(Round round, Params p, const u32* x, const u32* argument, u32* y) {
  __shared__ u64 masses[BINS * COPIES];
  __shared__ u64 stretches[STRETCH_OF_BINS];
  __shared__ u32 ends[2];
  u32 row = round.row();
  if (row == ~0u) return;
  const u32* own = x + p.x + (size_t)row * p.extent;
  float share = __uint_as_float(argument[p.argument + row / p.argument_rows]);
  u32 high = 0, low = ~0u, prefix = 0;
  for (u32 i = threadIdx.x; i < p.extent; i += LOCAL) {
    u32 key = key_of(own[i], FLOATS);
    high = max(high, key), low = min(low, key);
  }
  if (threadIdx.x == 0) ends[0] = 0, ends[1] = ~0u;
  __syncthreads();
  atomicMax(&ends[0], high);
  atomicMin(&ends[1], low);
  __syncthreads();
  high = ends[0], low = ends[1];
  u32 found = high;
  if (!(share < 1.0f)) {
    found = low;
  } else if (!is_infinite_or_nan(word_of(high))) {
    // With an infinite maximum nothing else is possible.
    float best = __uint_as_float(word_of(high));
    u64 wanted = 0;
    for (u32 shift = 32; shift; shift -= 8) {
      clear(masses);
      for (u32 i = threadIdx.x; i < p.extent; i += LOCAL) {
        u32 key = key_of(own[i], FLOATS);
        if ((key & known_bits(shift)) != prefix) continue;
        u64 mass = mass_of(exp_below(__fsub_rn(__uint_as_float(own[i]), best)), p.one);
        if (mass) atomicAdd(&masses[bin_place(digit_of(key, shift))], mass);
      }
      sum_stretches(masses, stretches);
      if (shift == 32) wanted = share_of(total_mass(stretches), fmaxf(share, 0.0f));
      prefix |= find_mass(masses, stretches, wanted) << (shift - 8);
    }
    found = prefix;
  }
  if (threadIdx.x == 0) y[p.y + row] = word_of(found);
}
