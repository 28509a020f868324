/* How a weight matrix lies in memory.
 *
 * Rows are taken in strips of eight, so that four rows are the lanes of a vector and no product needs a horizontal sum.
 *
 * Affine: a strip is a sequence of blocks, one a group of 16 or 32 columns:
 *     scales of the eight rows, f16 or f32; their minima likewise, if the format has them; codes.
 *   Codes of 4 bits, per eight columns: rows 0–3 then 4–7, a u32 lane a row. Columns 0 2 4 6 are the nibbles of its low
 *   half, 1 3 5 7 those of its high half: shift and mask give i16 pairs of neighbouring columns.
 *   Codes of 8 bits, per four columns: rows 0–3 then 4–7, a u32 lane a row, its bytes the columns 0 2 1 3.
 *
 * Dense: a strip is a sequence of columns of eight values: f32 rows 0–3 then 4–7; of 16 bits, row i is the low half and
 *   row i + 4 the high half of u32 lane i.
 *
 * A last strip of fewer rows is filled with zeros. */
#pragma once
#include "base.h"

enum { STRIP = 8 };

struct format {
  u32 bits; /* 4, 8: affine codes; 16, 32: dense */
  u32 group;
  u32 scale_bytes; /* 2 or 4 */
  u32 has_minima;
};

/* Formats by number: 0–15 affine, then dense f32, f16, bf16. */
enum { DENSE_F32 = 16, DENSE_F16, DENSE_BF16, FORMATS };

INLINE struct format affine_format(u32 number) {
  return (struct format){number & 8 ? 8 : 4, number & 4 ? 32 : 16, number & 2 ? 4 : 2, number & 1};
}

INLINE u32 codes_offset(struct format f) { return STRIP * f.scale_bytes * (1 + f.has_minima); }
INLINE u32 block_bytes(struct format f) { return codes_offset(f) + f.group * f.bits; }
INLINE u32 dense_column_bytes(u32 number) { return number == DENSE_F32 ? 4 * STRIP : 2 * STRIP; }

INLINE u32 strip_bytes(u32 number, u32 columns) {
  if (number >= DENSE_F32) return columns * dense_column_bytes(number);
  struct format f = affine_format(number);
  return columns / f.group * block_bytes(f);
}

/* Scales (or minima) of rows 0–3 and 4–7 as float32. */
INLINE void load_scales(const u8 *p, u32 scale_bytes, vec *low, vec *high) {
  if (scale_bytes == 4) {
    *low = wasm_v128_load(p), *high = wasm_v128_load(p + 16);
  } else {
    vec halves = wasm_v128_load(p);
    *low = f32_from_f16(wasm_i32x4_extend_low_i16x8(halves));
    *high = f32_from_f16(wasm_i32x4_extend_high_i16x8(halves));
  }
}

/* One column of a dense strip as float32. */
INLINE void load_dense(const u8 *p, u32 number, vec *low, vec *high) {
  if (number == DENSE_F32) {
    *low = wasm_v128_load(p), *high = wasm_v128_load(p + 16);
    return;
  }
  vec both = wasm_v128_load(p);
  if (number == DENSE_F16) {
    *low = f32_from_f16(wasm_i32x4_shr(wasm_i32x4_shl(both, 16), 16));
    *high = f32_from_f16(wasm_i32x4_shr(both, 16));
  } else {
    *low = wasm_i32x4_shl(both, 16);
    *high = wasm_v128_and(both, wasm_i32x4_const_splat((int)0xffff0000));
  }
}
