// The K largest of each row in falling order, K ≤ 1024, and where they are; of equal ones the first. The K-th key is found
// digit by digit, then, where only some of its equals fit, the last of their indices; what is left is ranked by counting.
#include "bins.cuh"

struct Params {
  u32 extent, x, values, places;  // where each begins
};

// The key that `wanted` keys of the row reach; with `among`, among the inverted indices of the keys that equal it.
__device__ __forceinline__ u32 select_key(const u32* own, u32 extent, u32* bins, u32* stretches, u32& wanted, bool among, u32 equal) {
  u32 prefix = 0;
  for (u32 shift = 32; shift; shift -= 8) {
    clear(bins);
    for (u32 i = threadIdx.x; i < extent; i += LOCAL) {
      u32 value = key_of(own[i], TYPE), key = among ? ~i : value;
      if ((!among || value == equal) && (key & known_bits(shift)) == prefix) atomicAdd(&bins[bin_place(digit_of(key, shift))], 1u);
    }
    prefix |= find_bin(bins, stretches, wanted) << (shift - 8);
  }
  return prefix;
}

extern "C" __global__ void __launch_bounds__(LOCAL, 1) top_k(Round round, Params p, const u32* x, u32* values, u32* places) {
  __shared__ u32 bins[BINS * COPIES];
  __shared__ u32 stretches[STRETCH_OF_BINS];
  __shared__ u32 keys[K];
  __shared__ u32 indices[K];
  __shared__ u32 chosen;
  u32 row = round.row();
  if (row == ~0u) return;
  const u32* own = x + p.x + (size_t)row * p.extent;
  u32 wanted = K, least = select_key(own, p.extent, bins, stretches, wanted, false, 0), equals = 0, last = ~0u;
  // The last digit's bin counts the keys that equal the least: do all of them fit?
  for (u32 copy = 0; copy < COPIES; copy++) equals += bins[(least & 255) * COPIES + copy];
  if (equals > wanted) last = ~select_key(own, p.extent, bins, stretches, wanted, true, least);
  if (threadIdx.x == 0) chosen = 0;
  __syncthreads();
  for (u32 i = threadIdx.x; i < p.extent; i += LOCAL) {
    u32 key = key_of(own[i], TYPE);
    if (key < least || (key == least && i > last)) continue;
    u32 place = atomicAdd(&chosen, 1u);
    keys[place] = key, indices[place] = i;
  }
  __syncthreads();
  for (u32 i = threadIdx.x; i < K; i += LOCAL) {
    u32 rank = 0;
    for (u32 j = 0; j < K; j++) rank += keys[j] > keys[i] || (keys[j] == keys[i] && indices[j] < indices[i]);
    values[p.values + (size_t)row * K + rank] = own[indices[i]];
    places[p.places + (size_t)row * K + rank] = indices[i];
  }
}
