/* y = x · weightᵀ (+ bias) for affine weights.
 *
 * A group's codes give an exact integer sum; then y += (scale_w · scale_x) · sum and y += minimum · (scale_x · Σq). Both
 * forms do these float operations in the same order, so a row's result doesn't depend on how many rows came with it. */
#include "experts.h"

#define NIBBLES wasm_i16x8_const_splat(15)
#define BYTES wasm_i16x8_const_splat(255)

INLINE vec add_products(vec total, vec codes, vec x) { return wasm_i32x4_add(total, wasm_i32x4_dot_i16x8(codes, x)); }

/* A constant zero point is taken off the integer sum: Σ(code − zero)·q = Σ code·q − zero·Σq. */
INLINE void add_group(struct format f, const u8 *block, const u8 *header, vec zero, vec low, vec high, vec *y0, vec *y1) {
  vec s0, s1, scale = wasm_v128_load(header);
  load_scales(block, f.scale_bytes, &s0, &s1);
  if (!f.has_minima) {
    vec off = wasm_i32x4_mul(zero, wasm_v128_load(header + 32));
    low = wasm_i32x4_sub(low, off), high = wasm_i32x4_sub(high, off);
  }
  *y0 = fma(wasm_f32x4_mul(s0, scale), wasm_f32x4_convert_i32x4(low), *y0);
  *y1 = fma(wasm_f32x4_mul(s1, scale), wasm_f32x4_convert_i32x4(high), *y1);
  if (f.has_minima) {
    vec m0, m1, sum = wasm_v128_load(header + 16);
    load_scales(block + STRIP * f.scale_bytes, f.scale_bytes, &m0, &m1);
    *y0 = fma(m0, sum, *y0), *y1 = fma(m1, sum, *y1);
  }
}

/* One row of x in vector form against one strip. */
INLINE void strip_product(struct format f, const struct linear *a, const u8 *block, const u8 *x, vec *y0, vec *y1) {
  u32 groups = a->columns / f.group;
  const u8 *header = x, *pairs = x + groups * VECTOR_HEADER;
  vec zero = wasm_i32x4_splat((i32)a->zero);
  for (u32 g = 0; g < groups; g++, block += block_bytes(f), header += VECTOR_HEADER) {
    vec low = ZERO, high = ZERO;
    const u8 *codes = block + codes_offset(f), *end = block + block_bytes(f);
    do { /* eight columns */
      vec x0 = wasm_v128_load(pairs), x1 = wasm_v128_load(pairs + 16);
      vec x2 = wasm_v128_load(pairs + 32), x3 = wasm_v128_load(pairs + 48);
      vec c0 = wasm_v128_load(codes), c1 = wasm_v128_load(codes + 16);
      if (f.bits == 4) {
        low = add_products(low, wasm_v128_and(c0, NIBBLES), x0);
        high = add_products(high, wasm_v128_and(c1, NIBBLES), x0);
        low = add_products(low, wasm_v128_and(wasm_u16x8_shr(c0, 4), NIBBLES), x1);
        high = add_products(high, wasm_v128_and(wasm_u16x8_shr(c1, 4), NIBBLES), x1);
        low = add_products(low, wasm_v128_and(wasm_u16x8_shr(c0, 8), NIBBLES), x2);
        high = add_products(high, wasm_v128_and(wasm_u16x8_shr(c1, 8), NIBBLES), x2);
        low = add_products(low, wasm_u16x8_shr(c0, 12), x3);
        high = add_products(high, wasm_u16x8_shr(c1, 12), x3);
      } else {
        vec c2 = wasm_v128_load(codes + 32), c3 = wasm_v128_load(codes + 48);
        low = add_products(low, wasm_v128_and(c0, BYTES), x0);
        high = add_products(high, wasm_v128_and(c1, BYTES), x0);
        low = add_products(low, wasm_u16x8_shr(c0, 8), x1);
        high = add_products(high, wasm_u16x8_shr(c1, 8), x1);
        low = add_products(low, wasm_v128_and(c2, BYTES), x2);
        high = add_products(high, wasm_v128_and(c3, BYTES), x2);
        low = add_products(low, wasm_u16x8_shr(c2, 8), x3);
        high = add_products(high, wasm_u16x8_shr(c3, 8), x3);
      }
      codes += 8 * f.bits, pairs += 64;
    } while (codes != end);
    add_group(f, block, header, zero, low, high, y0, y1);
  }
}

INLINE void few_rows(struct format f, const struct linear *a, struct units strips) {
  u32 bytes = a->columns / f.group * block_bytes(f), x_bytes = prepared_bytes(true, true, a->columns, f.group);
  for (u32 strip = strips.begin; strip < strips.end; strip++)
    for (u32 row = 0; row < *a->rows; row++) {
      vec low = ZERO, high = ZERO;
      strip_product(f, a, a->weight + strip * bytes, a->prepared + row * x_bytes, &low, &high);
      store_strip(a, row, strip, low, high);
    }
}

/* A strip opened up for many rows: per group the scales and minima of eight rows as float32, then codes less the zero
 * point as i16 pairs, two vectors a pair of columns. */
struct opened {
  float *scales; /* [groups][16] */
  i16 *pairs;    /* [columns / 2][16] */
};

INLINE void open_strip(struct format f, const struct linear *a, const u8 *block, struct opened to) {
  vec zero = wasm_i16x8_splat((i16)a->zero);
  float *scales = to.scales;
  i16 *pairs = to.pairs;
  for (u32 g = 0; g < a->columns / f.group; g++, block += block_bytes(f), scales += 16) {
    vec s0, s1, m0 = ZERO, m1 = ZERO;
    load_scales(block, f.scale_bytes, &s0, &s1);
    if (f.has_minima) load_scales(block + STRIP * f.scale_bytes, f.scale_bytes, &m0, &m1);
    wasm_v128_store(scales, s0), wasm_v128_store(scales + 4, s1);
    wasm_v128_store(scales + 8, m0), wasm_v128_store(scales + 12, m1);
    const u8 *codes = block + codes_offset(f), *end = block + block_bytes(f);
    for (; codes != end; codes += 32) {
      vec c0 = wasm_v128_load(codes), c1 = wasm_v128_load(codes + 16);
      vec mask = f.bits == 4 ? NIBBLES : BYTES;
#pragma clang loop unroll(full)
      for (u32 k = 0; k < 16 / f.bits; k++, pairs += 16) {
        wasm_v128_store(pairs, wasm_i16x8_sub(wasm_v128_and(wasm_u16x8_shr(c0, f.bits * k), mask), zero));
        wasm_v128_store(pairs + 8, wasm_i16x8_sub(wasm_v128_and(wasm_u16x8_shr(c1, f.bits * k), mask), zero));
      }
    }
  }
}

/* Eight integer sums over a group: rows 0–3 of the strip (w0) and 4–7 (w1) with each of the tile's four rows. */
#define TILE_PRODUCTS(operation)                                                      \
  do {                                                                                \
    vec w0 = wasm_v128_load(pairs), w1 = wasm_v128_load(pairs + 8);                   \
    vec both = wasm_v128_load(x), one = SPLAT_LANE(both, 0), two = SPLAT_LANE(both, 1); \
    vec three = SPLAT_LANE(both, 2), four = SPLAT_LANE(both, 3);                      \
    operation(a0, w0, one) operation(a1, w1, one) operation(a2, w0, two) operation(a3, w1, two) \
    operation(a4, w0, three) operation(a5, w1, three) operation(a6, w0, four) operation(a7, w1, four) \
    pairs += 16, x += 16;                                                             \
  } while (0)
#define FIRST(total, w, x) total = wasm_i32x4_dot_i16x8(w, x);
#define NEXT(total, w, x) total = add_products(total, w, x);

#define FINISH(lane, low, high)                                                                              \
  do {                                                                                                       \
    vec scale = SPLAT_LANE(scale_x, lane), sum = SPLAT_LANE(sum_x, lane);                                    \
    sums[2 * lane] = fma(wasm_f32x4_mul(s0, scale), wasm_f32x4_convert_i32x4(low), sums[2 * lane]);          \
    sums[2 * lane + 1] = fma(wasm_f32x4_mul(s1, scale), wasm_f32x4_convert_i32x4(high), sums[2 * lane + 1]); \
    sums[2 * lane] = fma(m0, sum, sums[2 * lane]);                                                           \
    sums[2 * lane + 1] = fma(m1, sum, sums[2 * lane + 1]);                                                   \
  } while (0)

static void tile_product(const struct linear *a, u32 group, struct opened strip, const u8 *tile, vec *out) {
  u32 groups = a->columns / group;
  const float *scales = strip.scales;
  const i16 *pairs = strip.pairs;
  const u8 *header = tile, *x = tile + groups * TILE_HEADER;
  vec sums[2 * TILE] = {ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO, ZERO};
  for (u32 g = 0; g < groups; g++, scales += 16, header += TILE_HEADER) {
    vec a0, a1, a2, a3, a4, a5, a6, a7;
    const i16 *end = pairs + group * 8;
    TILE_PRODUCTS(FIRST); /* apart from the loop: zeros to start from would take a register through it */
    do TILE_PRODUCTS(NEXT);
    while (pairs != end);
    vec s0 = wasm_v128_load(scales), s1 = wasm_v128_load(scales + 4);
    vec m0 = wasm_v128_load(scales + 8), m1 = wasm_v128_load(scales + 12);
    vec scale_x = wasm_v128_load(header), sum_x = wasm_v128_load(header + 16);
    FINISH(0, a0, a1);
    FINISH(1, a2, a3);
    FINISH(2, a4, a5);
    FINISH(3, a6, a7);
  }
  for (u32 i = 0; i < 2 * TILE; i++) out[i] = sums[i];
}

INLINE void many_rows(struct format f, const struct linear *a, struct units strips, u8 *scratch) {
  u32 groups = a->columns / f.group, bytes = groups * block_bytes(f), rows = *a->rows;
  u32 tile_bytes = prepared_bytes(false, true, a->columns, f.group);
  struct opened opened = {(float *)scratch, (i16 *)(scratch + groups * 64)};
  for (u32 strip = strips.begin; strip < strips.end; strip++) {
    open_strip(f, a, a->weight + strip * bytes, opened);
    for (u32 tile = 0; tile < divide_up(rows, TILE); tile++) {
      vec sums[2 * TILE];
      tile_product(a, f.group, opened, a->prepared + tile * tile_bytes, sums);
      store_tile(a, tile, rows, strip, sums);
    }
  }
}

typedef void product(const struct linear *, struct units, u8 *scratch);

#define PRODUCT(number)                                                                          \
  static void product_##number(const struct linear *a, struct units strips, u8 *scratch) {       \
    if (is_vector_form(*a->rows))                                                                \
      few_rows(affine_format(number), a, strips);                                                \
    else                                                                                         \
      many_rows(affine_format(number), a, strips, scratch);                                      \
  }
PRODUCT(0) PRODUCT(1) PRODUCT(2) PRODUCT(3) PRODUCT(4) PRODUCT(5) PRODUCT(6) PRODUCT(7)
PRODUCT(8) PRODUCT(9) PRODUCT(10) PRODUCT(11) PRODUCT(12) PRODUCT(13) PRODUCT(14) PRODUCT(15)

static product *const products[] = {product_0,  product_1,  product_2,  product_3,  product_4,  product_5,
                                    product_6,  product_7,  product_8,  product_9,  product_10, product_11,
                                    product_12, product_13, product_14, product_15};

void linear_affine(struct instruction *in, struct worker *me) {
  const struct linear a = *(const struct linear *)in->arguments;
  u32 strips = *a.rows ? divide_up(a.outputs, STRIP) : 0;
  struct units got = {0, 0};
  for (u32 chunk = chunk_for(strips, 2); take(in, strips, chunk, &got);) products[a.format](&a, got, me->scratch);
}

static void product_of_any(const struct linear *part, struct units strips, u8 *scratch) {
  products[part->format](part, strips, scratch);
}

void expert_linear_affine(struct instruction *in, struct worker *me) {
  over_experts(in, me, divide_up(((const struct linear *)in->arguments)->outputs, STRIP), true, product_of_any);
}
