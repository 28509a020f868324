/* Types and vector helpers that all kernels share.
 *
 * Cranelift places a pure operation where a store or a branch first needs it, so all loads of a basic block come first
 * and stay in registers until then. Inner loops are therefore short, not unrolled, and load at most about seven vectors:
 * x86-64 has sixteen. That made the matrix kernels twice as fast. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <wasm_simd128.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef int16_t i16;
typedef int32_t i32;
typedef v128_t vec;

#define INLINE static inline __attribute__((always_inline))
#define EXPORT(name) __attribute__((export_name(#name)))

#define ZERO wasm_i32x4_const_splat(0)
#define SPLAT_LANE(v, lane) wasm_i32x4_shuffle(v, v, lane, lane, lane, lane)

INLINE u32 min_u32(u32 a, u32 b) { return a < b ? a : b; }
INLINE u32 max_u32(u32 a, u32 b) { return a > b ? a : b; }
INLINE u32 divide_up(u32 a, u32 b) { return (a + b - 1) / b; }

/* a·b + c; fused where the machine can. */
INLINE vec fma(vec a, vec b, vec c) { return wasm_f32x4_relaxed_madd(a, b, c); }

/* Four f16 in the low halves of i32 lanes, sign-extended. Shifting puts exponent and mantissa where f32 has them, 112
 * powers of two too small; the product also makes subnormals right. Infinities become 65536, which no scale is. */
INLINE vec f32_from_f16(vec halves) {
  vec shifted = wasm_v128_and(wasm_i32x4_shl(halves, 13), wasm_i32x4_const_splat((int)0x8fffe000));
  return wasm_f32x4_mul(shifted, wasm_f32x4_const_splat(0x1p112f));
}

INLINE float half_to_float(const u8 *p) {
  return wasm_f32x4_extract_lane(f32_from_f16(wasm_i32x4_splat(*(const i16 *)p)), 0);
}

/* The larger, and NaN where `b` is NaN: one instruction, unlike wasm_f32x4_max. */
INLINE vec larger(vec a, vec b) { return wasm_f32x4_pmax(b, a); }

INLINE float sum_lanes(vec v) {
  vec pairs = wasm_f32x4_add(v, wasm_i32x4_shuffle(v, v, 2, 3, 0, 1));
  return wasm_f32x4_extract_lane(pairs, 0) + wasm_f32x4_extract_lane(pairs, 1);
}

INLINE float max_lanes(vec v) {
  vec pairs = wasm_f32x4_max(v, wasm_i32x4_shuffle(v, v, 2, 3, 0, 1)); /* keeps NaN wherever it is */
  return wasm_f32x4_extract_lane(wasm_f32x4_max(pairs, wasm_i32x4_shuffle(pairs, pairs, 1, 0, 3, 2)), 0);
}

/* Lane i of the result is the sum of the lanes of the i-th vector. */
INLINE vec sum_each(vec a, vec b, vec c, vec d) {
  vec ab = wasm_f32x4_add(wasm_i32x4_shuffle(a, b, 0, 4, 1, 5), wasm_i32x4_shuffle(a, b, 2, 6, 3, 7));
  vec cd = wasm_f32x4_add(wasm_i32x4_shuffle(c, d, 0, 4, 1, 5), wasm_i32x4_shuffle(c, d, 2, 6, 3, 7));
  return wasm_f32x4_add(wasm_i32x4_shuffle(ab, cd, 0, 1, 4, 5), wasm_i32x4_shuffle(ab, cd, 2, 3, 6, 7));
}
