/* gather_rows, store, copy_pages and copy_slots: bytes moved as they are. */
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

/* A slot's bytes lie in `outer` pieces of `inner` bytes, each piece beside those of the page's other slots. */
struct copy_slots {
  const u32 *count, *sources, *targets;
  u8 *state;
  u32 page_bytes, pages, page_size, outer, inner;
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

INLINE u8 *piece_of(const struct copy_slots *a, u32 slot, u32 piece) {
  u32 page = slot / a->page_size, offset = slot % a->page_size;
  return a->state + page * a->page_bytes + (piece * a->page_size + offset) * a->inner;
}

/* A thread takes a piece of all slots: it reads them all before it writes one. */
void copy_slots(struct instruction *in, struct worker *me) {
  const struct copy_slots a = *(const struct copy_slots *)in->arguments;
  u8 *held = me->scratch;
  u32 limit = a.pages * a.page_size;
  struct units got;
  while (take(in, a.outer, 1, &got)) {
    for (u32 i = 0; i < *a.count; i++)
      if (a.sources[i] < limit) __builtin_memcpy(held + i * a.inner, piece_of(&a, a.sources[i], got.begin), a.inner);
    for (u32 i = 0; i < *a.count; i++)
      if (a.sources[i] < limit && a.targets[i] < limit)
        __builtin_memcpy(piece_of(&a, a.targets[i], got.begin), held + i * a.inner, a.inner);
  }
}
