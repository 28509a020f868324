/* Rows sorted by their experts, and where what is prepared of them lies. */
#pragma once
#include "linear.h"

struct mixture {
  const u32 *order, *starts; /* as `sort_by_expert` writes them */
  u32 experts;
};

INLINE u32 rows_of_expert(const struct mixture *m, u32 expert) { return m->starts[expert + 1] - m->starts[expert]; }

/* An expert's rows are prepared in the form that is best for their number; a slot has room for a row or a tile. */
INLINE u32 slots_for(u32 rows) { return is_vector_form(rows) ? rows : divide_up(rows, TILE); }

/* The part of a `linear` of all experts' matrices that is one expert's. */
struct part {
  struct linear own;
  u32 rows;
};

/* The `wanted`-th of the experts that have rows. `own.rows` is the part's own: it must not be copied. */
INLINE void find_part(const struct linear *a, const struct mixture *m, u32 wanted, bool affine, struct part *part) {
  u32 expert = 0, slots = 0;
  for (;; expert++) {
    u32 rows = rows_of_expert(m, expert);
    if (rows && !wanted--) break;
    slots += slots_for(rows);
  }
  u32 group = affine ? affine_format(a->format).group : 0;
  part->own = *a;
  part->rows = rows_of_expert(m, expert);
  part->own.rows = &part->rows;
  part->own.weight = a->weight + expert * divide_up(a->outputs, STRIP) * strip_bytes(a->format, a->columns);
  part->own.prepared = a->prepared + slots * prepared_bytes(true, affine, a->columns, group);
  part->own.bias = a->bias ? a->bias + expert * a->outputs : 0;
  part->own.places = m->order + m->starts[expert];
}

INLINE u32 experts_with_rows(const struct mixture *m) {
  u32 count = 0;
  for (u32 expert = 0; expert < m->experts; expert++) count += rows_of_expert(m, expert) > 0;
  return count;
}

struct expert_linear {
  struct linear all;
  struct mixture mixture;
};

typedef void product_of_part(const struct linear *part, struct units units, u8 *scratch);

/* All products, `units` to an expert; experts without rows are passed over. */
INLINE void over_experts(struct instruction *in, struct worker *me, u32 units, bool affine, product_of_part *product) {
  const struct expert_linear a = *(const struct expert_linear *)in->arguments;
  u32 total = experts_with_rows(&a.mixture) * units;
  struct units got = {0, 0};
  for (u32 chunk = chunk_for(total, 2); take(in, total, chunk, &got);)
    for (u32 unit = got.begin; unit < got.end;) {
      u32 first = unit % units, end = min_u32(units, first + got.end - unit);
      struct part part;
      find_part(&a.all, &a.mixture, unit / units, affine, &part);
      product(&part.own, (struct units){first, end}, me->scratch);
      unit += end - first;
    }
}
