// A layer's pages and a step's fields, and which keys a row sees, by the rule of `attention` in pie_edge/program/ops.py.
// With HALVES keys and values are halves, else floats.
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

#if HALVES
#define VECTOR 8  // values of 16 bytes of keys
#else
#define VECTOR 4
#endif

__device__ __forceinline__ void load_keys(const void* from, size_t at, float found[VECTOR]) {
  uint4 words = __ldg((const uint4*)from + at);
  const u32 four[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < VECTOR; i++)
    found[i] = HALVES ? half_to_float((u16)(four[i / 2] >> 16 * (i % 2))) : __uint_as_float(four[i % 4]);
}
// Four values from a place that 4 divides.
__device__ __forceinline__ float4 load_values(const void* from, size_t at) {
#if HALVES
  uint2 pairs = __ldg((const uint2*)((const u16*)from + at));
  return make_float4(half_to_float((u16)pairs.x), half_to_float((u16)(pairs.x >> 16)), half_to_float((u16)pairs.y),
                     half_to_float((u16)(pairs.y >> 16)));
#else
  return __ldg((const float4*)((const float*)from + at));
#endif
}

__device__ __forceinline__ float capped(const Attention& a, float score) {
  return a.softcap > 0.0f ? a.softcap * tanhf(score / a.softcap) : score;
}
