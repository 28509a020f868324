// The choice of experts by row, and rows by expert.
#include "common.cuh"

#define MOST_EXPERTS 1024

// A warp a row: the largest logits one after the other, of equal ones the lower first.
extern "C" __global__ void __launch_bounds__(32)
    route(const float* logits, u32* experts, float* weights, u32 count, u32 chosen, u32 normalised, float factor,
          const u32* rows) {
  __shared__ float left[MOST_EXPERTS];
  u32 row = blockIdx.x, lane = threadIdx.x;
  if (!is_true(row, rows)) return;
  float largest = -infinity(), total = 0.0f, taken = 0.0f;
  for (u32 i = lane; i < count; i += 32) {
    left[i] = logits[(size_t)row * count + i];
    largest = fmaxf(largest, left[i]);
  }
  largest = warp_max(largest);
  for (u32 i = lane; i < count; i += 32) total += expf(left[i] - largest);
  total = warp_sum(total);
  for (u32 j = 0; j < chosen; j++) {
    float best = -infinity();
    u32 place = ~0u;
    for (u32 i = lane; i < count; i += 32)
      if (left[i] > best || place == ~0u) best = left[i], place = i;
#pragma unroll
    for (int by = 16; by; by >>= 1) {
      float other = __shfl_xor_sync(ALL_LANES, best, by);
      u32 there = __shfl_xor_sync(ALL_LANES, place, by);
      if (there != ~0u && (place == ~0u || other > best || (other == best && there < place))) best = other, place = there;
    }
    float weight = expf(best - largest);
    taken += weight;
    if (lane == 0) experts[row * chosen + j] = place, weights[row * chosen + j] = weight;
    if (lane == place % 32) left[place] = -infinity();
    __syncwarp();
  }
  float whole = normalised ? taken : total;
  for (u32 j = lane; j < chosen; j += 32) weights[row * chosen + j] = weights[row * chosen + j] / whole * factor;
}

// One block; each thread gathers some experts' places, in rising order.
extern "C" __global__ void __launch_bounds__(MOST_EXPERTS)
    sort_by_expert(const u32* experts, u32* order, u32* starts, u32 count, u32 chosen, u32 most, const u32* rows) {
  __shared__ u32 sizes[MOST_EXPERTS];
  u32 there = (rows == nullptr ? most : *rows) * chosen, expert = threadIdx.x, size = 0;
  if (expert < count)
    for (u32 i = 0; i < there; i++) size += experts[i] == expert;
  sizes[expert] = size;
  __syncthreads();
  u32 begin = 0;
  for (u32 i = 0; i < expert && i < count; i++) begin += sizes[i];
  if (expert > count) return;
  starts[expert] = begin;
  if (expert == count) return;
  for (u32 i = 0; i < there; i++)
    if (experts[i] == expert) order[begin++] = i;
}
