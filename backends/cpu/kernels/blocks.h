/* The blocks of GGUF files: how to read a group's codes, scale and minimum out of them. */
#pragma once
#include "base.h"

enum source { PLANES, DENSE, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K };

/* A group's codes, one a byte. */
struct codes {
  u8 at[32];
};

INLINE void copy_half(u8 *to, const u8 *from) { *(u16 *)to = *(const u16 *)from; }

/* Sixteen bytes hold columns 0–15 in their low and 16–31 in their high nibbles. */
INLINE void split_nibbles(const u8 *p, struct codes *to) {
  vec both = wasm_v128_load(p), mask = wasm_i8x16_const_splat(15);
  wasm_v128_store(to->at, wasm_v128_and(both, mask));
  wasm_v128_store(to->at + 16, wasm_v128_and(wasm_u16x8_shr(both, 4), mask));
}

/* Bit i of 32 is added to code i as its bit 4. */
INLINE void add_fifth_bits(const u8 *p, struct codes *to) {
  vec bit = wasm_i8x16_const(1, 2, 4, 8, 16, 32, 64, -128, 1, 2, 4, 8, 16, 32, 64, -128);
  for (u32 half = 0; half < 2; half++) {
    vec low = wasm_i8x16_splat((char)p[2 * half]), high = wasm_i8x16_splat((char)p[2 * half + 1]);
    vec bytes = wasm_i64x2_shuffle(low, high, 0, 2);
    vec set = wasm_i8x16_eq(wasm_v128_and(bytes, bit), bit);
    vec *at = (vec *)(to->at + 16 * half);
    *at = wasm_v128_or(*at, wasm_v128_and(set, wasm_i8x16_const_splat(16)));
  }
}

/* Scale and minimum number `j` of a K block: six bits each, packed in twelve bytes; the minimum is taken off. */
INLINE void k_scales(const u8 *block, u32 j, u8 *scale, u8 *minimum) {
  const u8 *q = block + 4;
  u32 s = j < 4 ? q[j] & 63 : (u32)(q[j + 4] & 15) | (u32)(q[j - 4] >> 6) << 4;
  u32 m = j < 4 ? q[j + 4] & 63 : (u32)(q[j + 4] >> 4) | (u32)(q[j] >> 6) << 4;
  *(float *)scale = half_to_float(block) * (float)s;
  *(float *)minimum = half_to_float(block + 2) * (float)-(i32)m;
}

/* 32 codes of four bits: the low or the high nibbles of 32 bytes. */
INLINE void take_nibbles(const u8 *p, bool high, struct codes *to) {
  for (u32 i = 0; i < 32; i += 16) {
    vec both = wasm_v128_load(p + i), shifted = high ? wasm_u16x8_shr(both, 4) : both;
    wasm_v128_store(to->at + i, wasm_v128_and(shifted, wasm_i8x16_const_splat(15)));
  }
}

INLINE void read_q4_k(const u8 *block, u32 j, u8 *scale, u8 *minimum, struct codes *to) {
  k_scales(block, j, scale, minimum);
  take_nibbles(block + 16 + j / 2 * 32, j & 1, to);
}

INLINE void read_q5_k(const u8 *block, u32 j, u8 *scale, u8 *minimum, struct codes *to) {
  k_scales(block, j, scale, minimum);
  take_nibbles(block + 48 + j / 2 * 32, j & 1, to);
  for (u32 i = 0; i < 32; i++) to->at[i] |= (u8)((block[16 + i] >> j & 1) << 4);
}

/* Group `j` of sixteen: 128 codes share 64 bytes of low and 32 of high bits. */
INLINE void read_q6_k(const u8 *block, u32 j, u8 *scale, struct codes *to) {
  u32 half = j / 8, quarter = j % 8 / 2, first = j % 2 * 16;
  const u8 *low = block + half * 64 + quarter % 2 * 32 + first, *high = block + 128 + half * 32 + first;
  *(float *)scale = half_to_float(block + 208) * (float)((const int8_t *)block)[192 + j];
  for (u32 i = 0; i < 16; i++) {
    u32 nibble = quarter < 2 ? low[i] & 15 : low[i] >> 4;
    to->at[i] = (u8)(nibble | (high[i] >> 2 * quarter & 3) << 4);
  }
}
