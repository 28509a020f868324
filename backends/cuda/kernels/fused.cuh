// What the text of an epilogue's fused kernels uses: reductions of a block to all its threads. `room` has two words for each
// warp, and may be used again at once.
#pragma once
#include "nodes.cuh"

__device__ __forceinline__ float reduce_sum(float value, u32* room) {
#pragma unroll
  for (int by = 16; by; by >>= 1) value = __fadd_rn(value, __shfl_xor_sync(ALL_LANES, value, by));
  __syncthreads();
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = __float_as_uint(value);
  __syncthreads();
  value = 0.0f;
  for (u32 warp = 0; warp < blockDim.x / 32; warp++) value = __fadd_rn(value, __uint_as_float(room[warp]));
  return value;
}
__device__ __forceinline__ u32 reduce_sum(u32 value, u32* room) {
#pragma unroll
  for (int by = 16; by; by >>= 1) value += __shfl_xor_sync(ALL_LANES, value, by);
  __syncthreads();
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
  __syncthreads();
  value = 0;
  for (u32 warp = 0; warp < blockDim.x / 32; warp++) value += room[warp];
  return value;
}

// The best value, and of equal ones the lowest index.
template <class T, class Better> __device__ __forceinline__ void reduce_best(Better better, T& value, u32& index, u32* room) {
#pragma unroll
  for (int by = 16; by; by >>= 1) {
    T other = __shfl_xor_sync(ALL_LANES, value, by);
    u32 place = __shfl_xor_sync(ALL_LANES, index, by);
    if (better(other, value) || (other == value && place < index)) value = other, index = place;
  }
  T* values = (T*)room;
  u32* places = room + blockDim.x / 32;
  __syncthreads();
  if (threadIdx.x % 32 == 0) values[threadIdx.x / 32] = value, places[threadIdx.x / 32] = index;
  __syncthreads();
  value = values[0], index = places[0];
  for (u32 warp = 1; warp < blockDim.x / 32; warp++)
    if (better(values[warp], value) || (values[warp] == value && places[warp] < index)) value = values[warp], index = places[warp];
}

// A sum, and what it rounds away (Knuth's TwoSum): a thread may sum thousands of numbers.
__device__ __forceinline__ void sum_exactly(float& total, float& loss, float value) {
  float next = __fadd_rn(total, value), part = __fsub_rn(next, total);
  float lost = __fadd_rn(__fsub_rn(total, __fsub_rn(next, part)), __fsub_rn(value, part));
  total = next, loss = __fadd_rn(loss, lost);
}
// What a thread's sum has rounded away goes back into it, unless that is infinite or not a number.
__device__ __forceinline__ float whole_sum(float total, float loss) {
  return is_infinite_or_nan(__float_as_uint(total)) ? total : __fadd_rn(total, loss);
}
