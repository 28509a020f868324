// How the attention of observed rows is spread over pages: a block for each of those rows, a key a thread.
#include "attention.cuh"

#define THREADS 128
#define LAYER_WORDS 8

struct Observed {
  const u32 *rows, *starts, *layers;
  u32 most, layer;
};

__device__ __forceinline__ float score_of(const Attention& a, const float* q, u32 kv_head, const Key& key) {
  size_t head = ((size_t)(key.place / a.page) * a.kv_heads + kv_head) * (a.width / VECTOR);
  float score = 0.0f;
  for (u32 d = 0; d < a.width / VECTOR; d++) {
    float k[VECTOR];
    load_keys(a.keys, (head + d) * a.page + key.place % a.page, k);
#pragma unroll
    for (u32 n = 0; n < VECTOR; n++) score += q[d * VECTOR + n] * k[n];
  }
  return capped(a, score * a.scale);
}

extern "C" __global__ void __launch_bounds__(THREADS) attention_mass(Step step, Attention a, Observed o, float* y) {
  __shared__ float room[THREADS / 32];
  u32 i = blockIdx.x, begin = o.starts[i], end = o.starts[i + 1], tid = threadIdx.x;
  if (end <= begin) return;
  u32 layers = 0;
  for (int n = 0; n < LAYER_WORDS; n++) layers += __popc(o.layers[i * LAYER_WORDS + n]);
  bool chosen = o.layers[i * LAYER_WORDS + o.layer / 32] >> o.layer % 32 & 1;
  for (u32 e = begin + tid; e < end; e += THREADS) y[e] = 0.0f;
  if (!chosen) return;
  u32 row = o.rows[i];
  Keys keys(step, sequence_of(row, step.query_starts, step.counts[SEQUENCES]));
  u32 total = keys.entries * a.page, whole = (total + THREADS - 1) / THREADS * THREADS;
  for (u32 head = 0; head < a.heads; head++) {
    const float* q = a.q + ((size_t)row * a.heads + head) * a.width;
    u32 kv_head = head / (a.heads / a.kv_heads);
    float peak = -infinity(), sum = 0.0f;
    for (u32 j = tid; j < total; j += THREADS) {
      Key key = key_at(step, a, keys, j);
      if (!sees(step, a, keys, key, j, row)) continue;
      float score = score_of(a, q, kv_head, key), most = fmaxf(peak, score);
      sum = sum * expf(peak - most) + expf(score - most);
      peak = most;
    }
    float sink = a.sinks == nullptr ? -infinity() : a.sinks[head], most = warp_max(fmaxf(peak, sink));
    __syncthreads();
    if (tid % 32 == 0) room[tid / 32] = most;
    __syncthreads();
    most = warp_max(room[tid % (THREADS / 32)]);
    float own = peak == -infinity() ? 0.0f : sum * expf(peak - most);
    float all = block_sum(own, room) + (sink == -infinity() ? 0.0f : expf(sink - most));
    float share = 1.0f / (fmaxf(all, 1e-30f) * a.heads * layers);
    for (u32 j = tid; j < whole; j += THREADS) {
      float weight = 0.0f;
      if (j < total) {
        Key key = key_at(step, a, keys, j);
        if (sees(step, a, keys, key, j, row)) weight = expf(score_of(a, q, kv_head, key) - most);
      }
      for (u32 by = a.page / 2; by; by >>= 1) weight += __shfl_xor_sync(ALL_LANES, weight, by);
      if (j < total && j % a.page == 0) y[begin + j / a.page] += weight * share;
    }
  }
}
