/* Rows sorted by their experts, and where what is prepared of them lies. */
#pragma once
#include "linear.h"

/* `order` and `starts` are as `sort_by_expert` writes them. They are temporaries: a thread that comes by when an instruction is
 * complete may find something else there. So the units of an instruction are counted by the step's rows, and only what has
 * been taken looks at them. */
struct mixture {
  const u32 *order, *starts;
  const u32 *rows; /* of the step */
  u32 experts, chosen;
};

INLINE u32 places_of(const struct mixture *m) { return *m->rows * m->chosen; }

INLINE u32 rows_of_expert(const struct mixture *m, u32 expert) { return m->starts[expert + 1] - m->starts[expert]; }

/* An expert's rows are prepared in the form that is best for their number; a slot has room for a row or a tile. */
INLINE u32 slots_for(u32 rows) { return is_vector_form(rows) ? rows : divide_up(rows, TILE); }

/* The part of a `linear` of all experts' matrices that is one expert's. */
struct part {
  struct linear own;
  u32 rows;
};

/* The `wanted`-th of the experts that have rows; false if so many haven't. `own.rows` is the part's own: don't copy it. */
INLINE bool find_part(const struct linear *a, const struct mixture *m, u32 wanted, bool affine, struct part *part) {
  u32 expert = 0, slots = 0;
  for (; expert < m->experts; expert++) {
    u32 rows = rows_of_expert(m, expert);
    if (rows && !wanted--) break;
    slots += slots_for(rows);
  }
  if (expert == m->experts) return false;
  u32 group = affine ? affine_format(a->format).group : 0;
  part->own = *a;
  part->rows = rows_of_expert(m, expert);
  part->own.rows = &part->rows;
  part->own.weight = a->weight + expert * divide_up(a->outputs, STRIP) * strip_bytes(a->format, a->columns);
  part->own.prepared = a->prepared + slots * prepared_bytes(true, affine, a->columns, group);
  part->own.bias = a->bias ? a->bias + expert * a->outputs : 0;
  part->own.places = m->order + m->starts[expert];
  return true;
}

struct expert_linear {
  struct linear all;
  struct mixture mixture;
};

typedef void product_of_part(const struct linear *part, struct units units, u8 *scratch);

/* All products, `units` to an expert, of as many experts as may have rows. */
INLINE void over_experts(struct instruction *in, struct worker *me, u32 units, bool affine, product_of_part *product) {
  const struct expert_linear a = *(const struct expert_linear *)in->arguments;
  u32 total = min_u32(a.mixture.experts, places_of(&a.mixture)) * units;
  struct units got = {0, 0};
  for (u32 chunk = chunk_for(total, 2); take(in, total, chunk, &got);)
    for (u32 unit = got.begin; unit < got.end;) {
      u32 first = unit % units, end = min_u32(units, first + got.end - unit);
      struct part part;
      if (!find_part(&a.all, &a.mixture, unit / units, affine, &part)) break;
      product(&part.own, (struct units){first, end}, me->scratch);
      unit += end - first;
    }
}
