/* How the attention of observed rows is spread over the pages of their sequences: of each page, the sum of the softmax's
 * weights of its keys, as a mean over heads and over the layers that the row chose.
 *
 * Each page's weights are summed relative to its own largest score; when all are known they are brought to one scale. A row
 * is one thread's, so its masses don't depend on what else is in the pass. Queries come in pairs, as in `attention`. */
#include "attention.h"
#include "crew.h"

enum { MOST_PAGE = 32, LAYER_WORDS = 8 };

/* A thread's working memory. */
struct room {
  struct sight sight;
  float scores[2][MOST_PAGE];
  float pages[][2][2]; /* of each page entry, for each of a pair: the largest score, Σe^(score − largest) */
};

static u32 sequence_of(const struct attention *a, u32 row) {
  u32 sequence = 0;
  while (a->query_starts[sequence + 1] <= row) sequence++;
  return sequence;
}

/* How many layers an observed row chose; 0 if this isn't one of them. */
static u32 chosen(const struct attention *a, u32 observed) {
  const u32 *words = a->mass_layers + observed * LAYER_WORDS;
  u32 count = 0;
  for (u32 i = 0; i < LAYER_WORDS; i++) count += (u32)__builtin_popcount(words[i]);
  return words[a->layer / 32] >> a->layer % 32 & 1 ? count : 0;
}

/* Σe^(score − largest) over a page, where what isn't seen scores −∞. One below e^−60 counts as zero, as in `attention`. */
static float weigh_page(const struct attention *a, const float *scores, float largest) {
  vec shift = wasm_f32x4_splat(largest), total = ZERO;
  for (u32 slot = 0; slot < a->page_size; slot += 4) {
    vec x = wasm_f32x4_sub(wasm_v128_load(scores + slot), shift);
    vec weight = wasm_v128_andnot(exp4_of_negative(x), wasm_f32x4_lt(x, wasm_f32x4_const_splat(-60.0f)));
    total = wasm_f32x4_add(total, weight);
  }
  return sum_lanes(total);
}

/* The pages of a sequence by two heads of a group. */
static void weigh_pair(const struct attention *a, struct room *room, u32 sequence, u32 row, u32 group, const u32 *heads) {
  u32 first = a->page_starts[sequence], entries = a->page_starts[sequence + 1] - first;
  for (u32 entry = 0; entry < entries; entry++) {
    if (entry % span_pages(a) == 0) look(a, sequence, entry / span_pages(a), row, &room->sight);
    u32 seen = room->sight.slots[entry % span_pages(a)];
    for (u32 k = 0; k < 2; k++) room->pages[entry][k][0] = -__builtin_inff(), room->pages[entry][k][1] = 0;
    if (!seen) continue;
    const float *q = a->q + row * a->heads * a->width;
    page_products(keys_of(a, a->pages[first + entry], group), a->page_size, q + heads[0] * a->width, q + heads[1] * a->width,
                  a->width, room->scores[0], room->scores[1]);
    for (u32 k = 0; k < 2; k++) {
      float largest = max_lanes(adjust(a, room->scores[k], seen, wasm_f32x4_const_splat(-__builtin_inff())));
      room->pages[entry][k][0] = largest, room->pages[entry][k][1] = weigh_page(a, room->scores[k], largest);
    }
  }
}

/* The weights of a page relative to another score than its own largest; 0 where none of it is seen. */
INLINE float relative(const float *page, float largest) { return page[1] == 0 ? 0 : page[1] * exp_of(page[0] - largest); }

/* Add what one head attends to, times `share`, to the masses of a row. */
static void add_masses(const struct attention *a, const struct room *room, u32 which, u32 head, u32 entries, float share,
                       float *y) {
  float largest = -__builtin_inff(), total = 0;
  for (u32 entry = 0; entry < entries; entry++)
    if (room->pages[entry][which][0] > largest) largest = room->pages[entry][which][0];
  for (u32 entry = 0; entry < entries; entry++) total += relative(room->pages[entry][which], largest);
  if (total == 0) return; /* it sees nothing */
  total = with_sink(a, head, &largest, total);
  for (u32 entry = 0; entry < entries; entry++) y[entry] += relative(room->pages[entry][which], largest) / total * share;
}

static void observe(const struct attention *a, struct room *room, u32 observed) {
  u32 start = a->mass_starts[observed], end = a->mass_starts[observed + 1], layers = chosen(a, observed);
  if (end <= start) return; /* beyond the rows there are */
  u32 row = a->mass_rows[observed], sequence = sequence_of(a, row), heads = heads_per_group(a);
  u32 entries = min_u32(end - start, a->page_starts[sequence + 1] - a->page_starts[sequence]);
  float *y = a->y + start, share = 1.0f / (float)(a->heads * max_u32(layers, 1));
  for (u32 entry = 0; entry < end - start; entry++) y[entry] = 0;
  for (u32 group = 0; layers && group < a->kv_heads; group++)
    for (u32 i = 0; i < heads; i += 2) {
      u32 pair[2] = {group * heads + i, group * heads + min_u32(i + 1, heads - 1)};
      weigh_pair(a, room, sequence, row, group, pair);
      for (u32 k = 0; k < min_u32(2, heads - i); k++) add_masses(a, room, k, pair[k], entries, share, y);
    }
}

void attention_mass(struct instruction *in, struct worker *me) {
  const struct attention a = *(const struct attention *)in->arguments;
  struct units got = {0, 0};
  while (take(in, a.observed, 1, &got)) observe(&a, (struct room *)me->scratch, got.begin);
}
