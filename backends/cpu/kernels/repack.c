/* Bring rows of a weight from a file's layout, or from planes, into ours: see weights.h. */
#include "blocks.h"
#include "crew.h"
#include "weights.h"

struct repack {
  const u8 *rows; /* a file's rows, or the plane of codes (a byte each), or dense values */
  const u8 *scales, *minima;
  u8 *weight; /* where the first of these rows' strips begins */
  u32 count, columns;
  u32 format, source;
  u32 source_group; /* columns a scale of the planes is for: a multiple of the format's group */
};

INLINE void copy_scale(u8 *to, const u8 *from, u32 bytes) {
  if (bytes == 4)
    *(u32 *)to = *(const u32 *)from;
  else
    copy_half(to, from);
}

static void read_planes(const struct repack *a, struct format f, u32 row, u32 g, u8 *scale, u8 *minimum, struct codes *to) {
  u32 leaf = (row * (a->columns / a->source_group) + g * f.group / a->source_group) * f.scale_bytes;
  copy_scale(scale, a->scales + leaf, f.scale_bytes);
  if (f.has_minima) copy_scale(minimum, a->minima + leaf, f.scale_bytes);
  __builtin_memcpy(to->at, a->rows + row * a->columns + g * f.group, f.group);
}

/* Read a group of a row; its scale and minimum go straight to their places. */
INLINE void read_group(const struct repack *a, struct format f, u32 row, u32 g, u8 *scale, u8 *minimum, struct codes *to) {
  u32 at = row * (a->columns / f.group) + g;
  const u8 *p;
  switch (a->source) {
    case Q4_0:
      p = a->rows + at * 18;
      copy_half(scale, p), split_nibbles(p + 2, to);
      break;
    case Q4_1:
      p = a->rows + at * 20;
      copy_half(scale, p), copy_half(minimum, p + 2), split_nibbles(p + 4, to);
      break;
    case Q5_0:
      p = a->rows + at * 22;
      copy_half(scale, p), split_nibbles(p + 6, to), add_fifth_bits(p + 2, to);
      break;
    case Q5_1:
      p = a->rows + at * 24;
      copy_half(scale, p), copy_half(minimum, p + 2), split_nibbles(p + 8, to), add_fifth_bits(p + 4, to);
      break;
    case Q8_0: { /* signed codes: −128 becomes 0 */
      vec sign = wasm_i8x16_const_splat((char)0x80);
      p = a->rows + at * 34;
      copy_half(scale, p);
      wasm_v128_store(to->at, wasm_v128_xor(wasm_v128_load(p + 2), sign));
      wasm_v128_store(to->at + 16, wasm_v128_xor(wasm_v128_load(p + 18), sign));
      break;
    }
    case Q4_K: read_q4_k(a->rows + at / 8 * 144, at % 8, scale, minimum, to); break;
    case Q5_K: read_q5_k(a->rows + at / 8 * 176, at % 8, scale, minimum, to); break;
    case Q6_K: read_q6_k(a->rows + at / 16 * 210, at % 16, scale, to); break;
    default: read_planes(a, f, row, g, scale, minimum, to);
  }
}

/* Eight codes, one a byte, to the nibbles of a u32: even columns to the low half, odd ones to the high half. */
INLINE u32 pack_nibbles(uint64_t codes) {
  uint64_t even = codes & 0x00ff00ff00ff00ff, odd = (codes >> 8) & 0x00ff00ff00ff00ff;
  uint64_t low = even | even >> 12 | even >> 24 | even >> 36, high = odd | odd >> 12 | odd >> 24 | odd >> 36;
  return (u32)(low & 0xffff) | (u32)(high & 0xffff) << 16;
}

/* Four codes to bytes 0 2 1 3. */
INLINE u32 swap_middle(u32 codes) { return (codes & 0xff0000ff) | (codes & 0xff00) << 8 | (codes >> 8 & 0xff00); }

static void affine_strip(const struct repack *a, u32 strip) {
  struct format f = affine_format(a->format);
  u32 groups = a->columns / f.group, there = min_u32(STRIP, a->count - strip * STRIP);
  u8 *block = a->weight + strip * groups * block_bytes(f);
  for (u32 g = 0; g < groups; g++, block += block_bytes(f))
    for (u32 row = 0; row < there; row++) {
      struct codes codes;
      u8 *scale = block + row * f.scale_bytes, *to = block + codes_offset(f) + row * 4;
      read_group(a, f, strip * STRIP + row, g, scale, scale + STRIP * f.scale_bytes, &codes);
      if (f.bits == 4)
        for (u32 i = 0; i < f.group; i += 8, to += 32) *(u32 *)to = pack_nibbles(*(const uint64_t *)(codes.at + i));
      else
        for (u32 i = 0; i < f.group; i += 4, to += 32) *(u32 *)to = swap_middle(*(const u32 *)(codes.at + i));
    }
}

static void dense_strip(const struct repack *a, u32 strip) {
  u32 there = min_u32(STRIP, a->count - strip * STRIP), step = dense_column_bytes(a->format);
  u8 *to = a->weight + strip * a->columns * step;
  for (u32 row = 0; row < there; row++) {
    u32 first = (strip * STRIP + row) * a->columns;
    if (a->format == DENSE_F32)
      for (u32 i = 0; i < a->columns; i++) *(u32 *)(to + i * step + row * 4) = ((const u32 *)a->rows)[first + i];
    else
      for (u32 i = 0; i < a->columns; i++)
        *(u16 *)(to + i * step + row % 4 * 4 + row / 4 * 2) = ((const u16 *)a->rows)[first + i];
  }
}

void repack(struct instruction *in, struct worker *me) {
  const struct repack a = *(const struct repack *)in->arguments;
  u32 strips = divide_up(a.count, STRIP);
  struct units got = {0, 0};
  for (u32 chunk = chunk_for(strips, 1); take(in, strips, chunk, &got);)
    for (u32 strip = got.begin; strip < got.end; strip++)
      if (a.source == DENSE)
        dense_strip(&a, strip);
      else
        affine_strip(&a, strip);
}
