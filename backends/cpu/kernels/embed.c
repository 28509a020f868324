/* embed: rows of a table in any format, which may be the head's weight as well. */
#include "crew.h"
#include "weights.h"

struct embed {
  const u8 *table;
  const i32 *token_src;
  const u32 *tokens; /* the pool that negative sources index */
  float *y;
  const u32 *rows;
  u32 width, vocabulary, pool;
  u32 format, zero;
  float scale;
};

static float half_or_float(const u8 *p, u32 bytes) { return bytes == 4 ? *(const float *)p : half_to_float(p); }

static void affine_row(const struct embed *a, const u8 *strip, u32 row, float *y) {
  struct format f = affine_format(a->format);
  for (u32 g = 0; g < a->width / f.group; g++, strip += block_bytes(f)) {
    float scale = half_or_float(strip + row * f.scale_bytes, f.scale_bytes), minimum = 0;
    if (f.has_minima) minimum = half_or_float(strip + (STRIP + row) * f.scale_bytes, f.scale_bytes);
    const u8 *codes = strip + codes_offset(f) + row * 4;
    for (u32 i = 0; i < f.group; i++) {
      u32 span = f.bits == 4 ? 8 : 4, k = i % span; /* columns in a u32 */
      u32 word = *(const u32 *)(codes + i / span * 32), shift = (k & 1) * 16 + (k >> 1) * f.bits;
      float code = (float)((word >> shift) & ((1u << f.bits) - 1)) - (float)(i32)a->zero;
      *y++ = (code * scale + minimum) * a->scale;
    }
  }
}

static void dense_row(const struct embed *a, const u8 *strip, u32 row, float *y) {
  for (u32 i = 0; i < a->width; i++, strip += dense_column_bytes(a->format)) {
    vec half[2];
    load_dense(strip, a->format, &half[0], &half[1]);
    y[i] = ((const float *)half)[row] * a->scale;
  }
}

void embed(struct instruction *in, struct worker *me) {
  const struct embed a = *(const struct embed *)in->arguments;
  struct units got = {0, 0};
  while (take(in, *a.rows, 1, &got)) {
    i32 source = a.token_src[got.begin];
    u32 id = source >= 0 ? (u32)source : a.tokens[min_u32((u32)(-1 - source), a.pool - 1)];
    id = min_u32(id, a.vocabulary - 1);
    const u8 *strip = a.table + id / STRIP * strip_bytes(a.format, a.width);
    float *y = a.y + got.begin * a.width;
    if (a.format < DENSE_F32)
      affine_row(&a, strip, id % STRIP, y);
    else
      dense_row(&a, strip, id % STRIP, y);
  }
}
