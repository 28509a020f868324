/* Where the recurrent state of a step's sequences lies, and what of it they go on from: `StepInputs` says what each is. */
#pragma once
#include "base.h"

struct places {
  const u32 *query_starts, *state_slots, *state_spans;
};

struct sequence {
  u32 first, rows; /* of the step */
  u32 source, home, fold;
  u32 start, replayed, folded;
};

INLINE struct sequence sequence_at(const struct places *p, u32 index) {
  const u32 *slots = p->state_slots + 3 * index, *spans = p->state_spans + 3 * index;
  u32 first = p->query_starts[index];
  return (struct sequence){first,    p->query_starts[index + 1] - first, slots[0], slots[1], slots[2], spans[0],
                           spans[1], spans[2]};
}

/* Row `row` of a sequence's own rows; those before them are in its tail. */
INLINE const float *row_of(const struct sequence *s, const float *x, const float *tail, u32 length, u32 width, i32 row) {
  if (row >= 0) return x + (s->first + (u32)row) * width;
  return tail + (s->home * length + (s->start + (u32)row) % length) * width;
}
