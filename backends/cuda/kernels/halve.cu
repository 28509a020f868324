// Rows of x as tensor cores take them: a value becomes two halves, high + low, scaled by a power of two for 32 columns: what is lost
// is less than a float's rounding of a sum. Beside weights of bfloat16 it is three of those, which lose nothing and need no scale. Once
// for all blocks of a product, which read them many times.
//
// Beside mma they lie as x does. With SHARED a product's columns are read from shared memory by wgmma, whose lane c of four multiplies
// columns 2c, 2c + 1, 2c + 8 and 2c + 9 of 16 with what weights it holds: so there each block's columns are put into that order.
// With SIXTEENS weights have scales for 16 columns: of the eight columns that a lane multiplies four are then of each half of a block,
// and each half has a sum.
#include "common.cuh"

#define BLOCK 32
#ifndef PARTS
#define PARTS 2
#endif
#ifndef SIXTEENS
#define SIXTEENS 0
#endif
#define STRETCHES (1 + SIXTEENS)

struct Halves {
  u16* parts;     // [PARTS][rows][blocks · 32]
  float2* units;  // [blocks · STRETCHES][rows]: what 1 stands for, and the sum of the scaled columns
  u32 blocks, rows;
};

// A thread has four columns of a row of x, eight threads all 32.
extern "C" __global__ void halve(const float* x, u32 columns, Halves to, const u32* count) {
  u32 row = blockIdx.y, item = blockIdx.x * blockDim.x + threadIdx.x, block = item / 8, eighth = item % 8;
  if (!is_true(row, count)) return;
  float4 four = four_of(block < to.blocks ? x + (size_t)row * columns : nullptr, 4 * item, columns);
  const float values[4] = {four.x, four.y, four.z, four.w};
  float by = 1.0f, sum = 0.0f;
  u32 words[PARTS][2];
#if PARTS == 3
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float left = values[i];
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
      u32 upper = __float_as_uint(left) >> 16;
      words[part][i / 2] = i % 2 ? words[part][i / 2] | upper << 16 : upper;
      left -= bf16_to_float((u16)upper);
    }
  }
#else
  float largest = fmaxf(fmaxf(fabsf(four.x), fabsf(four.y)), fmaxf(fabsf(four.z), fabsf(four.w)));
#pragma unroll
  for (int next = 4; next; next >>= 1) largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, next));
  // The largest becomes 2^14 … 2^15; what is nothing, or too small for a factor, stays as it is.
  int power = min(max((int)(__float_as_uint(largest) >> 23) - 127, -100), 127);
  if (largest > 0.0f) by = __int_as_float((14 - power + 127) << 23);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float scaled = values[i] * by;
    u16 upper = float_to_half(scaled), lower = float_to_half(scaled - half_to_float(upper));
    sum += scaled;
    words[0][i / 2] = i % 2 ? words[0][i / 2] | (u32)upper << 16 : upper;
    words[1][i / 2] = i % 2 ? words[1][i / 2] | (u32)lower << 16 : lower;
  }
#pragma unroll
  for (int next = 4 / STRETCHES; next; next >>= 1) sum += __shfl_xor_sync(ALL_LANES, sum, next);
#endif
  if (block >= to.blocks) return;
#pragma unroll
  for (int part = 0; part < PARTS; part++) {
    u16* own = to.parts + (((size_t)part * to.rows + row) * to.blocks + block) * BLOCK;
#if SHARED
#pragma unroll
    for (int i = 0; i < 2; i++) ((u32*)own)[4 * (2 * (eighth % 2) + i) + eighth / 2] = words[part][i];
#else
    u32 place = SIXTEENS ? 8 * (eighth % 4) + 4 * (eighth / 4) : 4 * eighth;
    *(uint2*)(own + place) = make_uint2(words[part][0], words[part][1]);
#endif
  }
  if (eighth % (8 / STRETCHES) == 0)
    to.units[(size_t)(block * STRETCHES + eighth / (8 / STRETCHES)) * to.rows + row] = {1.0f / by, sum};
}
