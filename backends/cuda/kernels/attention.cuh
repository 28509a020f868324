// A layer's pages and a step's fields, and which keys a row sees: the rule of `attention` in pie_edge/program/ops.py.
#pragma once
#include "common.cuh"

struct Step {
  const u32 *counts, *positions, *row_index, *query_starts, *page_starts, *pages, *page_bits, *fresh_bits;
  const u32 *mask_starts, *mask;  // or null
};

struct Attention {
  const float* q;
  const void *keys, *values;  // [page][head][width/v][slot][v], [page][head][slot][width]; v is 16 bytes' worth
  const u32* key_positions;
  const float* sinks;  // or null
  u32 heads, kv_heads, width, page, window;
  float scale, softcap;
};

enum Count : u32 { ROWS_OF_STEP, SEQUENCES, SAMPLED, ENTRIES };

// A sequence's keys, by their number in its page table.
struct Keys {
  u32 sequence, entries, first_entry, first_row;
  __device__ __forceinline__ Keys(const Step& step, u32 s)
      : sequence(s), entries(step.page_starts[s + 1] - step.page_starts[s]), first_entry(step.page_starts[s]),
        first_row(step.query_starts[s]) {}
};

struct Key {
  u32 place;  // page · P + slot
  bool written, fresh;
};
__device__ __forceinline__ Key key_at(const Step& step, const Attention& a, const Keys& keys, u32 j) {
  u32 entry = keys.first_entry + j / a.page, slot = j % a.page;
  return {step.pages[entry] * a.page + slot, (step.page_bits[entry] >> slot & 1) != 0, (step.fresh_bits[entry] >> slot & 1) != 0};
}
__device__ __forceinline__ bool sees(const Step& step, const Attention& a, const Keys& keys, const Key& key, u32 j, u32 row) {
  if (!key.written || (key.fresh && j > step.row_index[row])) return false;
  if (a.window && (int)(step.positions[row] - a.key_positions[key.place]) >= (int)a.window) return false;
  if (step.mask_starts == nullptr || step.mask_starts[keys.sequence] == 0) return true;
  const u32* words = step.mask + step.mask_starts[keys.sequence] - 1;
  return words[(row - keys.first_row) * keys.entries + j / a.page] >> j % a.page & 1;
}

template <bool HALVES> struct Vector;  // 16 bytes of keys
template <> struct Vector<true> {
  static const u32 WIDTH = 8;
  static __device__ __forceinline__ void load(const void* from, size_t at, float found[8]) {
    uint4 words = __ldg((const uint4*)from + at);
    const u32 pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 8; i++) found[i] = half_to_float((u16)(pairs[i / 2] >> 16 * (i % 2)));
  }
  // Four values from a place that 4 divides.
  static __device__ __forceinline__ float4 four(const void* from, size_t at) {
    uint2 pairs = __ldg((const uint2*)((const u16*)from + at));
    return make_float4(half_to_float((u16)pairs.x), half_to_float((u16)(pairs.x >> 16)), half_to_float((u16)pairs.y),
                       half_to_float((u16)(pairs.y >> 16)));
  }
};
template <> struct Vector<false> {
  static const u32 WIDTH = 4;
  static __device__ __forceinline__ void load(const void* from, size_t at, float found[4]) {
    float4 four = __ldg((const float4*)from + at);
    found[0] = four.x, found[1] = four.y, found[2] = four.z, found[3] = four.w;
  }
  static __device__ __forceinline__ float4 four(const void* from, size_t at) {
    return __ldg((const float4*)((const float*)from + at));
  }
};

__device__ __forceinline__ float capped(const Attention& a, float score) {
  return a.softcap > 0.0f ? a.softcap * tanhf(score / a.softcap) : score;
}
