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

// A thread has four columns of a row of x, eight threads all 32.
extern "C" __global__ void halve(const float* x, u32 columns, Halves to, const u32* count) {
  u32 row = blockIdx.y, item = blockIdx.x * blockDim.x + threadIdx.x, block = item / 8, eighth = item % 8;
  if (!is_true(row, count)) return;
  float4 four = four_of(block < to.blocks ? x + (size_t)row * columns : nullptr, 4 * item, columns);
  const float values[4] = {four.x, four.y, four.z, four.w};
  float largest = fmaxf(fmaxf(fabsf(four.x), fabsf(four.y)), fmaxf(fabsf(four.z), fabsf(four.w))), sum = 0.0f;
#pragma unroll
  for (int by = 4; by; by >>= 1) largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, by));
  // The largest becomes 2^14 … 2^15; what is nothing, or too small for a factor, stays as it is.
  int power = min(max((int)(__float_as_uint(largest) >> 23) - 127, -100), 127);
  float by = largest > 0.0f ? __int_as_float((14 - power + 127) << 23) : 1.0f;
  u32 high[2], low[2];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float scaled = values[i] * by;
    u16 upper = float_to_half(scaled), lower = float_to_half(scaled - half_to_float(upper));
    sum += scaled;
    high[i / 2] = i % 2 ? high[i / 2] | (u32)upper << 16 : upper;
    low[i / 2] = i % 2 ? low[i / 2] | (u32)lower << 16 : lower;
  }
#pragma unroll
  for (int by = 4; by; by >>= 1) sum += __shfl_xor_sync(ALL_LANES, sum, by);
  if (block >= to.blocks) return;
  size_t at = ((size_t)row * to.blocks + block) * BLOCK;
#if SHARED
  u32 *highs = (u32*)(to.high + at), *lows = (u32*)(to.low + at);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    u32 pair = 4 * (2 * (eighth % 2) + i) + eighth / 2;
    highs[pair] = high[i], lows[pair] = low[i];
  }
#else
  *(uint2*)(to.high + at + 4 * eighth) = make_uint2(high[0], high[1]);
  *(uint2*)(to.low + at + 4 * eighth) = make_uint2(low[0], low[1]);
#endif
  if (eighth == 0) to.units[(size_t)block * to.rows + row] = {1.0f / by, sum};
}
