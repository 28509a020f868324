// What the kernels of an epilogue's nodes share. A block of LOCAL threads takes a row; rows are counted along y and then z, of
// the round that begins with pass `first` and holds at most `slots` passes of `rows` rows each.
#pragma once
#include "common.cuh"

struct Round {
  const u32* passes;  // how many a call really has
  u32 first, slots, rows;

  // The block's row, or ~0 where there is none.
  __device__ __forceinline__ u32 row() const {
    u32 row = blockIdx.z * gridDim.y + blockIdx.y, there = *passes > first ? *passes - first : 0;
    return row < min(there, slots) * rows ? row : ~0u;
  }
};

enum Type : u32 { FLOATS, SIGNED, UNSIGNED };

// Numbers as keys in the same order; −0 and 0 have one key.
__device__ __forceinline__ u32 key_of(u32 given, u32 type) {
  if (type == UNSIGNED) return given;
  if (type == SIGNED) return given ^ 0x80000000u;
  u32 word = given == 0x80000000u ? 0 : given;
  return word >> 31 ? ~word : word | 0x80000000u;
}
// Of a float.
__device__ __forceinline__ u32 word_of(u32 key) { return key >> 31 ? key & 0x7fffffffu : ~key; }

__device__ __forceinline__ bool is_infinite_or_nan(u32 word) { return (word & INFINITY_BITS) == INFINITY_BITS; }
