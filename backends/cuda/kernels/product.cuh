// Products of TOKENS rows with a weight matrix: what linear.cu and experts.cu have in common.
//
// A block has eight warps. Its rows of x are first brought to shared memory, a stretch of columns at a time: beside codes as 16
// bits a value, in two signed bytes (high · 256 + low) with a scale for 16 columns, so that __dp4a multiplies four columns at
// once and loses no more than a float's rounding would; beside all others as they are. Then `splits` warps share the columns
// of each row group: lane 8c + r has row r and every fourth item from c on.
#pragma once
#include "weights.cuh"

// Codes that stand for whole numbers go through __dp4a; what a table gives is multiplied as floats.
#define INTEGERS (FORMAT <= AFFINE8)
#define WARPS 8
#define PIECE 16  // columns with one scale

#if INTEGERS
#define ROOM (40 << 10)
#else
#define ROOM (32 << 10)
#endif
// Columns of a stretch: whole blocks, of so many rows in ROOM bytes, of which a value takes 2.5, or 4.
#define STRETCH (16384 / TOKENS / BLOCK * BLOCK / (INTEGERS ? 1 : 2))

struct Stretch {
  u32 first, columns;
};

struct Brought {
#if INTEGERS
  signed char* high;
  signed char* low;
  float* scales;
  int* sums;
#else
  float* values;
#endif
  __device__ __forceinline__ Brought(char* room) {
  #if INTEGERS
    high = (signed char*)room, low = high + TOKENS * STRETCH;
    scales = (float*)(low + TOKENS * STRETCH), sums = (int*)(scales + TOKENS * STRETCH / PIECE);
#else
    values = (float*)room;
#endif
  }
};

#if INTEGERS
__device__ __forceinline__ u32 bytes_of(const int values[4]) {
  return (u32)(values[0] & 255) | (u32)(values[1] & 255) << 8 | (u32)(values[2] & 255) << 16 | (u32)(values[3] & 255) << 24;
}

// Four values a thread, 16 with one scale: four threads. The largest is found by its bits, among which those of what is no number come
// last: then the scale is none either, for codes can't say so, and the products must.
__device__ __forceinline__ u32 size_bits(float value) { return __float_as_uint(fabsf(value)); }
__device__ __forceinline__ void quantise(Brought to, u32 at, float4 x, bool there) {
  u32 bits = max(max(size_bits(x.x), size_bits(x.y)), max(size_bits(x.z), size_bits(x.w)));
  bits = max(bits, __shfl_xor_sync(ALL_LANES, bits, 1));
  bits = max(bits, __shfl_xor_sync(ALL_LANES, bits, 2));
  float largest = __uint_as_float(bits);
  float step = largest / 32639.0f, back = largest > 0.0f ? 32639.0f / largest : 0.0f;
  if (!(back < infinity())) back = 0.0f, step = 0.0f;  // so small that they are nothing
  const int whole[4] = {__float2int_rn(x.x * back), __float2int_rn(x.y * back), __float2int_rn(x.z * back), __float2int_rn(x.w * back)};
  int upper[4], lower[4], sum = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) upper[i] = (whole[i] + 128) >> 8, lower[i] = whole[i] - upper[i] * 256, sum += whole[i];
  sum += __shfl_xor_sync(ALL_LANES, sum, 1);
  sum += __shfl_xor_sync(ALL_LANES, sum, 2);
  if (!there) return;
  *(u32*)(to.high + at) = bytes_of(upper), *(u32*)(to.low + at) = bytes_of(lower);
  if (at % PIECE == 0) to.scales[at / PIECE] = step, to.sums[at / PIECE] = sum;
}
#endif

// Rows of x into shared memory, four values a thread; `x[t]` is null for one that there isn't.
__device__ __forceinline__ void bring(Brought to, const float* const x[TOKENS], Stretch s, u32 columns) {
#pragma unroll
  for (int t = 0; t < TOKENS; t++)
    for (u32 base = 0; base < s.columns; base += 4 * 32 * WARPS) {
      u32 column = base + 4 * threadIdx.x;
      bool there = column < s.columns;
      float4 four = four_of(there ? x[t] : nullptr, s.first + column, columns);
#if INTEGERS
      quantise(to, t * STRETCH + column, four, there);
#else
      if (there) *(float4*)(to.values + t * STRETCH + column) = four;
#endif
    }
}

// Adds one row's share of an item to each token's sum.
__device__ __forceinline__ void add_item(Brought from, const Packing& p, const Matrix& m, Stretch s, u32 row, u32 item,
                                         float sums[TOKENS]) {
  u32 column = item * ITEM - s.first;
#if INTEGERS
  Codes codes = codes_of(p, m, row, item);
  Factor factor = factor_of(p, m, row, item * ITEM / p.group);
#pragma unroll
  for (int piece = 0; piece < ITEM / PIECE; piece++) {
    if (piece && p.group < ITEM) factor = factor_of(p, m, row, (item * ITEM + PIECE) / p.group);
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
      u32 at = t * STRETCH + column + piece * PIECE;
      int4 high = *(const int4*)(from.high + at), low = *(const int4*)(from.low + at);
      const int* fours = codes.fours + 4 * piece;
      int upper = __dp4a(fours[3], high.w, __dp4a(fours[2], high.z, __dp4a(fours[1], high.y, __dp4a(fours[0], high.x, 0))));
      int lower = __dp4a(fours[3], low.w, __dp4a(fours[2], low.z, __dp4a(fours[1], low.y, __dp4a(fours[0], low.x, 0))));
      float product = factor.scale * (float)(upper * 256 + lower) + factor.minimum * (float)from.sums[at / PIECE];
      sums[t] += from.scales[at / PIECE] * product;
    }
  }
#else
  float weights[ITEM];
  weights_of(p, m, row, item, weights);
#pragma unroll
  for (int t = 0; t < TOKENS; t++) {
    const float4* x = (const float4*)(from.values + t * STRETCH + column);
#pragma unroll
    for (int i = 0; i < ITEM / 4; i++) {
      float4 four = x[i];
      sums[t] += weights[4 * i] * four.x + weights[4 * i + 1] * four.y + weights[4 * i + 2] * four.z + weights[4 * i + 3] * four.w;
    }
  }
#endif
}

// One row group's share of a stretch, by one of the warps that split its columns.
__device__ __forceinline__ void add_group(Brought from, const Packing& p, const Matrix& m, Stretch s, u32 group, u32 split,
                                          u32 splits, float sums[TOKENS]) {
  u32 lane = threadIdx.x & 31, row = group * ROWS + lane % ROWS, end = (s.first + s.columns) / ITEM;
#if TOKENS <= 2
#pragma unroll 4
#else
#pragma unroll 1
#endif
  for (u32 item = s.first / ITEM + split * 4 + lane / ROWS; item < end; item += 4 * splits)
    add_item(from, p, m, s, row, item, sums);
}

// Sums of the lanes that share a row, and of the warps that share a row group: to lanes 0 … 7 of the first of those.
__device__ __forceinline__ void join(float sums[TOKENS], u32 split, u32 splits, float* room) {
  u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
  for (int t = 0; t < TOKENS; t++) {
    sums[t] += __shfl_xor_sync(ALL_LANES, sums[t], 8);
    sums[t] += __shfl_xor_sync(ALL_LANES, sums[t], 16);
  }
  if (splits == 1) return;
  __syncthreads();
  if (lane < ROWS)
#pragma unroll
    for (int t = 0; t < TOKENS; t++) room[(warp * TOKENS + t) * ROWS + lane] = sums[t];
  __syncthreads();
  if (split == 0 && lane < ROWS)
    for (u32 other = 1; other < splits; other++)
#pragma unroll
      for (int t = 0; t < TOKENS; t++) sums[t] += room[((warp + other) * TOKENS + t) * ROWS + lane];
}
