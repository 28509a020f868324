// Rotary positions, and keys and values into their pages. A frequency is a fraction of a turn in 64 bits: its product with a
// position loses whole turns alone.
#include "common.cuh"

struct Rope {
  const u32* frequencies;  // the high and the low word of each pair's
  u32 heads, width, rotary, neox;
  float magnitude;
};

// Values of pair `pair` of a head, and where they are within the head.
struct Pair { u32 first, second; };
__device__ __forceinline__ Pair pair_of(const Rope& rope, u32 pair) {
  u32 half = rope.rotary / 2;
  if (pair >= half) return {rope.rotary + 2 * (pair - half), rope.rotary + 2 * (pair - half) + 1};
  return rope.neox ? Pair{pair, pair + half} : Pair{2 * pair, 2 * pair + 1};
}

__device__ __forceinline__ float2 turned(const Rope& rope, u32 pair, u32 position, float a, float b) {
  if (pair >= rope.rotary / 2) return make_float2(a, b);
  u32 high = rope.frequencies[2 * pair], low = rope.frequencies[2 * pair + 1];
  u32 turns = position * high + __umulhi(position, low);
  float sine, cosine;
  sincospif((float)(int)turns * 0x1p-31f, &sine, &cosine);
  sine *= rope.magnitude, cosine *= rope.magnitude;
  return make_float2(a * cosine - b * sine, a * sine + b * cosine);
}

// One pair a thread; heads have an even width.
__device__ __forceinline__ void turn_row(const Rope& rope, const float* x, float* y, u32 item, u32 position) {
  u32 head = item / (rope.width / 2) * rope.width;
  Pair places = pair_of(rope, item % (rope.width / 2));
  float2 found = turned(rope, item % (rope.width / 2), position, x[head + places.first], x[head + places.second]);
  y[head + places.first] = found.x;
  y[head + places.second] = found.y;
}

extern "C" __global__ void __launch_bounds__(256)
    rope(Rope shape, const float* x, const u32* positions, float* y, const u32* rows) {
  u32 row = blockIdx.y, item = blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= shape.heads * shape.width / 2 || !is_true(row, rows)) return;
  size_t first = (size_t)row * shape.heads * shape.width;
  turn_row(shape, x + first, y + first, item, positions[row]);
}

// A layer's pages: keys [page][head][width/v][slot][v], values [page][head][slot][width], v being 16 bytes' worth.
struct Cache {
  void *keys, *values;
  u32* key_positions;
  u32 heads, page, halves;
};
__device__ __forceinline__ void put(void* to, u32 halves, size_t at, float value) {
  if (halves) ((u16*)to)[at] = float_to_half(value); else ((float*)to)[at] = value;
}
__device__ __forceinline__ void put_key(const Cache& cache, u32 width, u32 head, u32 slot, u32 d, float value) {
  u32 v = cache.halves ? 8 : 4, page = slot / cache.page;
  size_t row = ((size_t)page * cache.heads + head) * (width / v) + d / v;
  put(cache.keys, cache.halves, (row * cache.page + slot % cache.page) * v + d % v, value);
}
__device__ __forceinline__ void put_value(const Cache& cache, u32 width, u32 head, u32 slot, u32 d, float value) {
  u32 page = slot / cache.page;
  size_t row = ((size_t)page * cache.heads + head) * cache.page + slot % cache.page;
  put(cache.values, cache.halves, row * width + d, value);
}

extern "C" __global__ void __launch_bounds__(256)
    kv_append(Cache cache, const float* k, const float* v, const u32* positions, const u32* slots, u32 width,
              const u32* rows) {
  u32 row = blockIdx.y, item = blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= cache.heads * width || !is_true(row, rows)) return;
  u32 head = item / width, d = item % width, slot = slots[row];
  size_t at = (size_t)row * cache.heads * width + item;
  put_key(cache, width, head, slot, d, k[at]);
  put_value(cache, width, head, slot, d, v[at]);
  if (item == 0) cache.key_positions[slot] = positions[row];
}

// Queries turned in place of rope, keys turned and appended, values appended: a pair a thread, of queries, then keys, then values.
extern "C" __global__ void __launch_bounds__(256)
    rope_append(Rope shape, Cache cache, const float* q, const float* k, const float* v, const u32* positions,
                const u32* slots, float* y, const u32* rows) {
  u32 row = blockIdx.y, item = blockIdx.x * blockDim.x + threadIdx.x, half = shape.width / 2;
  if (item >= (shape.heads + 2 * cache.heads) * half || !is_true(row, rows)) return;
  u32 position = positions[row], slot = slots[row];
  if (item == 0) cache.key_positions[slot] = position;
  if (item < shape.heads * half) {
    size_t first = (size_t)row * shape.heads * shape.width;
    turn_row(shape, q + first, y + first, item, position);
    return;
  }
  item -= shape.heads * half;
  bool is_key = item < cache.heads * half;
  if (!is_key) item -= cache.heads * half;
  u32 head = item / half, pair = item % half;
  size_t first = (size_t)row * cache.heads * shape.width + head * shape.width;
  if (!is_key) {
    put_value(cache, shape.width, head, slot, 2 * pair, v[first + 2 * pair]);
    put_value(cache, shape.width, head, slot, 2 * pair + 1, v[first + 2 * pair + 1]);
    return;
  }
  Pair places = pair_of(shape, pair);
  float2 found = turned(shape, pair, position, k[first + places.first], k[first + places.second]);
  put_key(cache, shape.width, head, slot, places.first, found.x);
  put_key(cache, shape.width, head, slot, places.second, found.y);
}
