// Rows of x as tensor cores take them: a value becomes two halves, high + low, scaled by a power of two for 32 columns: what is lost
// is less than a float's rounding of a sum. Once for all blocks of a product, which read them many times.
//
// Beside mma they lie as x does. With SHARED a product's columns are read from shared memory by wgmma, whose lane c of four multiplies
// columns 2c, 2c + 1, 2c + 8 and 2c + 9 of 16 with what weights it holds: so there each block's columns are put into that order.
#include "common.cuh"

#define BLOCK 32

struct Halves {
  u16 *high, *low;  // [rows][blocks · 32]
  float2* units;    // [blocks][rows]: what 1 stands for, and the sum of the scaled columns
  u32 blocks, rows;
};

// A thread has eight columns of a row of x, four threads all 32.
extern "C" __global__ void halve(const float* x, u32 columns, Halves to, const u32* count) {
  u32 row = blockIdx.y, item = blockIdx.x * blockDim.x + threadIdx.x, block = item / 4, quarter = item % 4;
  if (!is_true(row, count)) return;
  const float* own = block < to.blocks ? x + (size_t)row * columns : nullptr;
  float4 first = four_of(own, 8 * item, columns), second = four_of(own, 8 * item + 4, columns);
  const float values[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
  float largest = 0.0f, sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; i++) largest = fmaxf(largest, fabsf(values[i]));
  largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 1));
  largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 2));
  // The largest becomes 2^14 … 2^15; what is nothing, or too small for a factor, stays as it is.
  int power = min(max((int)(__float_as_uint(largest) >> 23) - 127, -100), 120);
  float by = largest > 0.0f ? __int_as_float((14 - power + 127) << 23) : 1.0f;
  u32 highs[4], lows[4];
#pragma unroll
  for (int i = 0; i < 8; i++) {
    float scaled = values[i] * by;
    u16 high = float_to_half(scaled), low = float_to_half(scaled - half_to_float(high));
    sum += scaled;
    highs[i / 2] = i % 2 ? highs[i / 2] | (u32)high << 16 : high;
    lows[i / 2] = i % 2 ? lows[i / 2] | (u32)low << 16 : low;
  }
  sum += __shfl_xor_sync(ALL_LANES, sum, 1);
  sum += __shfl_xor_sync(ALL_LANES, sum, 2);
  if (block >= to.blocks) return;
  size_t at = ((size_t)row * to.blocks + block) * BLOCK;
#if SHARED
#pragma unroll
  for (int i = 0; i < 4; i++) {
    ((u32*)(to.high + at))[4 * i + quarter] = highs[i];
    ((u32*)(to.low + at))[4 * i + quarter] = lows[i];
  }
#else
  *(uint4*)(to.high + at + 8 * quarter) = make_uint4(highs[0], highs[1], highs[2], highs[3]);
  *(uint4*)(to.low + at + 8 * quarter) = make_uint4(lows[0], lows[1], lows[2], lows[3]);
#endif
  if (quarter == 0) to.units[(size_t)block * to.rows + row] = {1.0f / by, sum};
}
