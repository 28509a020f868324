/* gather_rows, store and copy_pages: bytes moved as they are. */
#include "crew.h"

struct gather {
  const float *x;
  const u32 *indices;
  float *y;
  const u32 *rows;
  u32 width, limit; /* rows that x has */
};

struct store {
  const float *x;
  float *state;
  const u32 *rows;
  u32 width;
};

struct copy_pages {
  const u32 *count, *sources, *targets;
  u8 *state;
  u32 page_bytes, pages;
};

void gather_rows(struct instruction *in, struct worker *me) {
  const struct gather a = *(const struct gather *)in->arguments;
  struct units got = {0, 0};
  while (take(in, *a.rows, 1, &got)) {
    u32 row = min_u32(a.indices[got.begin], a.limit - 1);
    __builtin_memcpy(a.y + got.begin * a.width, a.x + row * a.width, a.width * sizeof(float));
  }
}

void store(struct instruction *in, struct worker *me) {
  const struct store a = *(const struct store *)in->arguments;
  struct units got = {0, 0};
  while (take(in, *a.rows, 1, &got))
    __builtin_memcpy(a.state + got.begin * a.width, a.x + got.begin * a.width, a.width * sizeof(float));
}

void copy_pages(struct instruction *in, struct worker *me) {
  const struct copy_pages a = *(const struct copy_pages *)in->arguments;
  struct units got = {0, 0};
  while (take(in, *a.count, 1, &got)) {
    u32 source = a.sources[got.begin], target = a.targets[got.begin];
    if (source < a.pages && target < a.pages)
      __builtin_memcpy(a.state + target * a.page_bytes, a.state + source * a.page_bytes, a.page_bytes);
  }
}
