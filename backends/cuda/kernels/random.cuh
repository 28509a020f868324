// Draws: Threefry-2x32-20 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) and Gumbel noise, the same bits
// on every device.
#pragma once
#include "common.cuh"

__device__ __forceinline__ uint2 threefry(uint2 key, uint2 counter) {
  const u32 turns[8] = {13, 15, 26, 6, 17, 29, 16, 24}, keys[3] = {key.x, key.y, key.x ^ key.y ^ 0x1BD11BDAu};
  u32 a = counter.x + key.x, b = counter.y + key.y;
#pragma unroll
  for (int i = 0; i < 20; i++) {
    a += b;
    b = ((b << turns[i % 8]) | (b >> (32 - turns[i % 8]))) ^ a;
    if (i % 4 == 3) a += keys[(i / 4 + 1) % 3], b += keys[(i / 4 + 2) % 3] + i / 4 + 1;
  }
  return make_uint2(a, b);
}

// The natural logarithm of a positive normal number, within a unit in the last place. Minimax polynomial by S. L. Moshier
// (Cephes, single precision).
__device__ __forceinline__ float log_normal(float x) {
  const float powers[9] = {7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
                           -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f};
  int word = __float_as_int(x), power = (word >> 23) - 126;
  float mantissa = __int_as_float((word & 0x7fffff) | 0x3f000000);
  bool low = mantissa < 0.707106781f;
  float rest = __fsub_rn(low ? __fadd_rn(mantissa, mantissa) : mantissa, 1.0f), scale = (float)(low ? power - 1 : power);
  float square = __fmul_rn(rest, rest), value = powers[0];
#pragma unroll
  for (int i = 1; i < 9; i++) value = __fadd_rn(__fmul_rn(value, rest), powers[i]);
  value = __fmul_rn(__fmul_rn(value, rest), square);
  value = __fsub_rn(__fadd_rn(value, __fmul_rn(scale, -2.12194440e-4f)), __fmul_rn(square, 0.5f));
  return __fadd_rn(__fadd_rn(rest, value), __fmul_rn(scale, 0.693359375f));
}

// Of word `element` of a stream.
__device__ __forceinline__ float gumbel(uint2 stream, u32 element) {
  uint2 words = threefry(stream, make_uint2(element >> 1, 0));
  u32 word = element & 1 ? words.y : words.x;
  float uniform = __fmul_rn(__uint2float_rn(word >> 8 | 1), 5.9604644775390625e-8f);  // 2^-24
  return -log_normal(-log_normal(uniform));
}
