// softmax(scale · q · k) · v over a sequence's visible keys. A block has some queries of one key-value head: all that share the
// head in a few rows of one sequence. It goes over the keys 128 at a time: each thread scores one key for all queries, a warp
// for each query keeps the running maximum and sum, and then each thread has four values of the result over every few keys.
#include "attention.cuh"

#define THREADS 128
#define QUERIES 8  // of a block

struct Queries {
  u32 first_row, rows, head, heads;  // `heads` query heads from `head` on, in each row
  __device__ __forceinline__ u32 count() const { return rows * heads; }
  __device__ __forceinline__ u32 row(u32 query) const { return first_row + query / heads; }
  __device__ __forceinline__ size_t at(u32 query, const Attention& a) const {
    return ((size_t)row(query) * a.heads + head + query % heads) * a.width;
  }
};

// Where the results go: to y, or in part to where `attention_merge` joins them, [heads][width + 4].
struct Results {
  float *y, *partial;
};

__device__ __forceinline__ void attend(const Step& step, const Attention& a, const Keys& keys, const Queries& queries, u32 kv_head,
                                       u32 begin, u32 end, Results to) {
  extern __shared__ float4 shared[];
  float* q = (float*)shared;                    // [QUERIES][width]
  float* scores = q + QUERIES * a.width;        // [QUERIES][THREADS]
  float* gathered = scores + QUERIES * THREADS; // [parts][width]
  __shared__ float peaks[QUERIES];
  __shared__ float sums[QUERIES];
  __shared__ float rescale[QUERIES];
  __shared__ u32 places[THREADS];
  u32 tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, count = queries.count();
  for (u32 i = tid; i < count * a.width; i += THREADS) q[i] = a.q[queries.at(i / a.width, a) + i % a.width] * a.scale;
  if (tid < QUERIES) peaks[tid] = -infinity(), sums[tid] = 0.0f;
  u32 lanes = a.width / 4, parts = THREADS / lanes, part = tid / lanes, column = tid % lanes * 4;
  float4 found[QUERIES];
#pragma unroll
  for (int i = 0; i < QUERIES; i++) found[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (u32 base = begin; base < end; base += THREADS) {
    __syncthreads();
    u32 j = base + tid;
    Key key = j < end ? key_at(step, a, keys, j) : Key{0, false, false};
    float own[QUERIES];
#pragma unroll
    for (int i = 0; i < QUERIES; i++) own[i] = 0.0f;
    if (key.written) {
      size_t head = ((size_t)(key.place / a.page) * a.kv_heads + kv_head) * (a.width / VECTOR);
      for (u32 d = 0; d < a.width / VECTOR; d++) {
        float k[VECTOR];
        load_keys(a.keys, (head + d) * a.page + key.place % a.page, k);
#pragma unroll
        for (int i = 0; i < QUERIES; i++)
          if (i < count)
#pragma unroll
            for (u32 n = 0; n < VECTOR; n += 4) {
              float4 four = *(const float4*)(q + i * a.width + d * VECTOR + n);
              own[i] += four.x * k[n] + four.y * k[n + 1] + four.z * k[n + 2] + four.w * k[n + 3];
            }
      }
    }
#pragma unroll
    for (int i = 0; i < QUERIES; i++)
      if (i < count) scores[i * THREADS + tid] = own[i];
    bool seen = false;
#pragma unroll 1
    for (int i = 0; i < count; i++) {
      bool visible = key.written && sees(step, a, keys, key, j, queries.row(i));
      scores[i * THREADS + tid] = visible ? capped(a, scores[i * THREADS + tid]) : -infinity();
      seen = seen || visible;
    }
    places[tid] = seen ? key.place : ~0u;
    __syncthreads();
    for (u32 i = warp; i < count; i += THREADS / 32) {
      float four[THREADS / 32], peak = peaks[i], total = 0.0f;
#pragma unroll
      for (int n = 0; n < THREADS / 32; n++) {
        four[n] = scores[i * THREADS + 32 * n + lane];
        peak = fmaxf(peak, four[n]);
      }
      peak = warp_max(peak);
#pragma unroll
      for (int n = 0; n < THREADS / 32; n++) {
        float weight = four[n] == -infinity() ? 0.0f : expf(four[n] - peak);
        scores[i * THREADS + 32 * n + lane] = weight;
        total += weight;
      }
      total = warp_sum(total);
      __syncwarp();
      if (lane == 0) {
        rescale[i] = peak == -infinity() ? 1.0f : expf(peaks[i] - peak);
        sums[i] = sums[i] * rescale[i] + total;
        peaks[i] = peak;
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < QUERIES; i++)
      if (i < count) {
        float by = rescale[i];
        found[i].x *= by, found[i].y *= by, found[i].z *= by, found[i].w *= by;
      }
    if (part >= parts) continue;
    for (u32 n = part; n < THREADS; n += parts) {
      u32 place = places[n];
      if (place == ~0u) continue;
      size_t row = ((size_t)(place / a.page) * a.kv_heads + kv_head) * a.page + place % a.page;
      float4 value = load_values(a.values, row * a.width + column);
#pragma unroll
      for (int i = 0; i < QUERIES; i++)
        if (i < count) {
          float weight = scores[i * THREADS + n];
          found[i].x += weight * value.x, found[i].y += weight * value.y;
          found[i].z += weight * value.z, found[i].w += weight * value.w;
        }
    }
  }
#pragma unroll
  for (int i = 0; i < QUERIES; i++) {
    if (i >= count) break;
    __syncthreads();
    if (part < parts) *(float4*)(gathered + part * a.width + column) = found[i];
    __syncthreads();
    float peak = peaks[i], total = sums[i], by = 1.0f;
    u32 head = queries.head + i % queries.heads;
    if (a.sinks != nullptr && to.partial == nullptr) {
      float most = fmaxf(peak, a.sinks[head]);
      by = expf(peak - most), total = total * by + expf(a.sinks[head] - most);
    }
    for (u32 d = tid; d < a.width; d += THREADS) {
      float sum = 0.0f;
      for (u32 n = 0; n < parts; n++) sum += gathered[n * a.width + d];
      if (to.partial == nullptr) to.y[queries.at(i, a) + d] = total > 0.0f ? sum * by / total : 0.0f;
      else to.partial[(size_t)head * (a.width + 4) + d] = sum;
    }
    if (to.partial != nullptr && tid == 0) {
      float* end = to.partial + (size_t)head * (a.width + 4) + a.width;
      end[0] = peak, end[1] = total;
    }
  }
}

// Query heads that share a key-value head and go in one block, and the first of them; heads go along y.
struct Heads { u32 kv_head, head, heads; };
__device__ __forceinline__ Heads heads_of(const Attention& a, u32 y) {
  u32 sharing = a.heads / a.kv_heads, blocks = (sharing + QUERIES - 1) / QUERIES, kv_head = y / blocks, first = y % blocks * QUERIES;
  return {kv_head, kv_head * sharing + first, min((u32)QUERIES, sharing - first)};
}

// Sequences of one row: a block for each split of their keys.
extern "C" __global__ void __launch_bounds__(THREADS, 4)
    attention_decode(Step step, Attention a, float* y, float* partial, u32 split) {
  u32 s = blockIdx.x, begin = blockIdx.z * split;
  if (s >= step.counts[SEQUENCES] || step.query_starts[s + 1] - step.query_starts[s] != 1) return;
  Keys keys(step, s);
  u32 total = keys.entries * a.page;
  if (begin >= total && begin > 0) return;
  size_t place = (size_t)keys.first_entry * a.page / split + s + blockIdx.z;
  Results to = {y, total <= split ? nullptr : partial + place * a.heads * (a.width + 4)};
  Heads heads = heads_of(a, blockIdx.y);
  attend(step, a, keys, {keys.first_row, 1, heads.head, heads.heads}, heads.kv_head, begin, min(total, begin + split), to);
}

// What joins the splits of a sequence: a block for each of its heads.
extern "C" __global__ void __launch_bounds__(THREADS, 4)
    attention_merge(Step step, Attention a, float* y, const float* partial, u32 split) {
  u32 s = blockIdx.x, head = blockIdx.y;
  if (s >= step.counts[SEQUENCES] || step.query_starts[s + 1] - step.query_starts[s] != 1) return;
  Keys keys(step, s);
  u32 total = keys.entries * a.page, splits = (total + split - 1) / split, stride = a.heads * (a.width + 4);
  if (splits <= 1) return;
  const float* parts = partial + ((size_t)keys.first_entry * a.page / split + s) * stride + head * (a.width + 4);
  float peak = a.sinks == nullptr ? -infinity() : a.sinks[head], sum = 0.0f;
  for (u32 i = 0; i < splits; i++) peak = fmaxf(peak, parts[i * stride + a.width]);
  if (peak == -infinity()) peak = 0.0f;
  for (u32 i = 0; i < splits; i++) sum += expf(parts[i * stride + a.width] - peak) * parts[i * stride + a.width + 1];
  if (a.sinks != nullptr) sum += expf(a.sinks[head] - peak);
  for (u32 d = threadIdx.x; d < a.width; d += THREADS) {
    float found = 0.0f;
    for (u32 i = 0; i < splits; i++) found += expf(parts[i * stride + a.width] - peak) * parts[i * stride + d];
    y[((size_t)keys.first_row * a.heads + head) * a.width + d] = sum > 0.0f ? found / sum : 0.0f;
  }
}

// Sequences of several rows: a block for each few of a sequence's rows, tiles counted over all sequences.
extern "C" __global__ void __launch_bounds__(THREADS, 4) attention_prefill(Step step, Attention a, float* y) {
  u32 together = QUERIES / min(a.heads / a.kv_heads, (u32)QUERIES), tile = blockIdx.x, rows = 0, s;
  for (s = 0; s < step.counts[SEQUENCES]; s++) {
    rows = step.query_starts[s + 1] - step.query_starts[s];
    u32 tiles = rows == 1 ? 0 : (rows + together - 1) / together;
    if (tile < tiles) break;
    tile -= tiles;
  }
  if (s == step.counts[SEQUENCES]) return;
  Keys keys(step, s);
  u32 first = tile * together;
  Heads heads = heads_of(a, blockIdx.y);
  Queries queries = {keys.first_row + first, min(together, rows - first), heads.head, heads.heads};
  attend(step, a, keys, queries, heads.kv_head, 0, keys.entries * a.page, {y, nullptr});
}
