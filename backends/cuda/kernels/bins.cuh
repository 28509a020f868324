// Selection by radix works digit by digit, from the top: 256 bins hold what the digit's values hold together, COPIES times so
// that threads don't queue for one. Counts of keys, or probabilities as fixed-point numbers whose sums are the same in any order.
#pragma once
#include "nodes.cuh"

#define BINS 256
#define STRETCH_OF_BINS 16

__device__ __forceinline__ u32 bin_place(u32 bin) { return bin * COPIES + threadIdx.x % COPIES; }

__device__ __forceinline__ void clear(u32* bins) {
  __syncthreads();
  for (u32 i = threadIdx.x; i < BINS * COPIES; i += LOCAL) bins[i] = 0;
  __syncthreads();
}

// The highest bin with which at least `wanted` are counted; `wanted` becomes what is left for it.
__device__ __forceinline__ u32 find_bin(const u32* bins, u32* stretches, u32& wanted) {
  __syncthreads();
  if (threadIdx.x < STRETCH_OF_BINS) {
    u32 total = 0, width = STRETCH_OF_BINS * COPIES;
    for (u32 i = threadIdx.x * width; i < (threadIdx.x + 1) * width; i++) total += bins[i];
    stretches[threadIdx.x] = total;
  }
  __syncthreads();
  u32 stretch = STRETCH_OF_BINS - 1;
  while (stretch > 0 && stretches[stretch] < wanted) wanted -= stretches[stretch--];
  u32 bin = stretch * STRETCH_OF_BINS + STRETCH_OF_BINS - 1;
  for (; bin > stretch * STRETCH_OF_BINS; bin--) {
    u32 here = 0;
    for (u32 copy = 0; copy < COPIES; copy++) here += bins[bin * COPIES + copy];
    if (here >= wanted) break;
    wanted -= here;
  }
  return bin;
}

// The exponential of numbers that are not positive, within a unit in the last place; 0 below −103. Minimax polynomial by
// S. L. Moshier (Cephes, single precision).
__device__ __forceinline__ float exp_below(float x) {
  if (x < -103.0f) return 0.0f;
  float whole = rintf(__fmul_rn(x, 1.44269504f));
  float rest = __fsub_rn(x, __fmul_rn(whole, 0.693359375f));
  rest = __fsub_rn(rest, __fmul_rn(whole, -2.12194440e-4f));
  const float powers[6] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
  float value = powers[0];
#pragma unroll
  for (int i = 1; i < 6; i++) value = __fadd_rn(__fmul_rn(value, rest), powers[i]);
  value = __fadd_rn(__fadd_rn(__fmul_rn(value, __fmul_rn(rest, rest)), rest), 1.0f);
  // 2ⁿ in two steps: n may lie below the exponents of normal numbers.
  int count = (int)whole, half = count >> 1;
  return __fmul_rn(__fmul_rn(value, __int_as_float((half + 127) << 23)), __int_as_float((count - half + 127) << 23));
}

// A weight of 1 counts `one` · 2^32.
__device__ __forceinline__ u64 mass_of(float weight, float one) {
  float scaled = __fmul_rn(weight, one), whole = floorf(scaled);
  return (u64)(u32)whole << 32 | (u32)__fmul_rn(__fsub_rn(scaled, whole), 4294967296.0f);
}
// A share below 1 of it, rounded down, but not nothing.
__device__ __forceinline__ u64 share_of(u64 total, float share) {
  u32 parts = (u32)__fmul_rn(share, 4294967296.0f);
  u64 found = (total >> 32) * parts + ((total & 0xffffffffu) * parts >> 32);
  return found ? found : 1;
}
__device__ __forceinline__ void clear(u64* masses) {
  __syncthreads();
  for (u32 i = threadIdx.x; i < BINS * COPIES; i += LOCAL) masses[i] = 0;
  __syncthreads();
}
__device__ __forceinline__ u64 mass_of_bin(const u64* masses, u32 bin) {
  u64 total = 0;
  for (u32 copy = 0; copy < COPIES; copy++) total += masses[bin * COPIES + copy];
  return total;
}
__device__ __forceinline__ void sum_stretches(const u64* masses, u64* stretches) {
  __syncthreads();
  if (threadIdx.x < STRETCH_OF_BINS) {
    u64 total = 0;
    for (u32 i = 0; i < STRETCH_OF_BINS; i++) total += mass_of_bin(masses, threadIdx.x * STRETCH_OF_BINS + i);
    stretches[threadIdx.x] = total;
  }
  __syncthreads();
}
__device__ __forceinline__ u64 total_mass(const u64* stretches) {
  u64 total = 0;
  for (u32 i = 0; i < STRETCH_OF_BINS; i++) total += stretches[i];
  return total;
}
// The highest bin with which at least `wanted` is there; `wanted` becomes what is left for it. After sum_stretches.
__device__ __forceinline__ u32 find_mass(const u64* masses, const u64* stretches, u64& wanted) {
  u32 stretch = STRETCH_OF_BINS - 1;
  while (stretch > 0 && stretches[stretch] < wanted) wanted -= stretches[stretch--];
  u32 bin = stretch * STRETCH_OF_BINS + STRETCH_OF_BINS - 1;
  for (; bin > stretch * STRETCH_OF_BINS; bin--) {
    u64 here = mass_of_bin(masses, bin);
    if (here >= wanted) break;
    wanted -= here;
  }
  return bin;
}

// Digits of keys from the top, of those whose higher digits are `prefix`.
__device__ __forceinline__ u32 known_bits(u32 shift) { return shift == 32 ? 0 : 0xffffffffu << shift; }
__device__ __forceinline__ u32 digit_of(u32 key, u32 shift) { return key >> (shift - 8) & 255; }
