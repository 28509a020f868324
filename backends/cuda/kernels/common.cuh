// What kernels share: types, sums over a warp or a block, activations, and which rows of a step are true.
#pragma once
#include "ptx.cuh"

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define ALL_LANES 0xffffffffu
#define INFINITY_BITS 0x7f800000

__device__ __forceinline__ float infinity() { return __int_as_float(INFINITY_BITS); }

// Whether there is such a row: `count` points to the number of true ones, or is null where all are.
__device__ __forceinline__ bool is_true(u32 row, const u32* count) { return count == nullptr || row < *count; }

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int by = 16; by; by >>= 1) value += __shfl_xor_sync(ALL_LANES, value, by);
  return value;
}
__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int by = 16; by; by >>= 1) value = fmaxf(value, __shfl_xor_sync(ALL_LANES, value, by));
  return value;
}

// Of all threads of a block of whole warps, to all; `room` has a float for each warp, and may be used again at once.
__device__ __forceinline__ float block_sum(float value, float* room) {
  value = warp_sum(value);
  u32 lane = threadIdx.x & 31, warps = blockDim.x >> 5;
  __syncthreads();
  if (lane == 0) room[threadIdx.x >> 5] = value;
  __syncthreads();
  return warp_sum(lane < warps ? room[lane] : 0.0f);
}

__device__ __forceinline__ float bf16_to_float(u16 bits) { return __uint_as_float((u32)bits << 16); }

enum Act : u32 { NONE, SILU, GELU_TANH, GELU, RELU, SIGMOID };

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ float activated(u32 act, float x) {
  switch (act) {
    case SILU: return x * sigmoid(x);
    case GELU_TANH: return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
    case GELU: return 0.5f * x * erfcf(-0.7071067812f * x);
    case RELU: return fmaxf(x, 0.0f);
    case SIGMOID: return sigmoid(x);
    default: return x;
  }
}

// The sequence that a row belongs to, of those whose rows begin at `starts`.
__device__ __forceinline__ u32 sequence_of(u32 row, const u32* starts, u32 sequences) {
  u32 low = 0, high = sequences;
  while (high - low > 1) {
    u32 middle = (low + high) / 2;
    if (starts[middle] <= row) low = middle; else high = middle;
  }
  return low;
}

// Four values of a row from `column` on, with zeros past its end.
__device__ __forceinline__ float4 four_of(const float* x, u32 column, u32 columns) {
  if (x == nullptr || column >= columns) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (columns % 4 == 0) return __ldg((const float4*)(x + column));
  float values[4];
#pragma unroll
  for (u32 i = 0; i < 4; i++) values[i] = column + i < columns ? x[column + i] : 0.0f;
  return make_float4(values[0], values[1], values[2], values[3]);
}
