/* Attention of a pass's rows over their sequences' pages: K [pages,G,D/4,P,4], V [pages,G,P,D].
 *
 * A sequence's page table is taken in spans of 256 keys. Within a span the softmax uses the span's own maximum; spans are
 * then merged in order (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018). A sequence with one
 * row has its spans computed by different threads and merged by `attention_merge`; otherwise a thread takes eight rows
 * through all spans. Both do the same operations in the same order, so a row's result doesn't depend on what else is in
 * the pass. Queries that share keys and values are computed in pairs: the pair shares the loads. */
#include "attention.h"
#include "crew.h"

enum { TILE_ROWS = 8 };

/* Of one query over one or more spans: the largest score, Σe^(score − largest), and Σe^(score − largest)·v. */
struct result {
  float largest, total;
  float sums[];
};

/* A thread's working memory. */
struct room {
  struct sight rows[TILE_ROWS];
  float scores[2][SPAN_KEYS];
  float weights[SPAN_KEYS][2][4]; /* a weight in all lanes */
  float results[];                /* of a tile's queries, then two of the present span */
};

struct query {
  const float *q;
  const struct sight *sight;
  struct result *result;
};

INLINE struct result *result_at(const struct attention *a, float *base, u32 index) {
  return (struct result *)(base + index * (a->width + 4));
}
/* Distinct for all spans of all sequences. */
INLINE struct result *partial_at(const struct attention *a, u32 sequence, u32 span, u32 head) {
  u32 index = a->page_starts[sequence] / span_pages(a) + sequence + span;
  return result_at(a, a->partials, index * a->heads + head);
}

/* Bring a page's keys or values into the cache in the order of their addresses. The loops below go over a page several
 * times with a stride, which the processor's own prefetching doesn't follow. */
static __attribute__((noinline)) void touch(const float *page, u32 floats) {
  for (u32 i = 0; i < floats; i += 16) (void)*(const volatile float *)(page + i);
}

/* Scores of a pair with all pages that one of them sees; their largest. */
static void score_span(const struct attention *a, struct room *room, u32 group, const u32 *pages, const struct query *pair,
                       bool first, vec *largest) {
  largest[0] = largest[1] = wasm_f32x4_const_splat(-__builtin_inff());
  for (u32 i = 0; i < span_pages(a); i++) {
    u32 seen0 = pair[0].sight->slots[i], seen1 = pair[1].sight->slots[i];
    if (!(seen0 | seen1)) continue;
    const float *page = keys_of(a, pages[i], group);
    if (first) touch(page, a->width * a->page_size);
    float *scores0 = room->scores[0] + i * a->page_size, *scores1 = room->scores[1] + i * a->page_size;
    page_products(page, a->page_size, pair[0].q, pair[1].q, a->width, scores0, scores1);
    largest[0] = adjust(a, scores0, seen0, largest[0]), largest[1] = adjust(a, scores1, seen1, largest[1]);
  }
}

/* Weights e^(score − largest), each in all lanes of a vector, and their sum. One below e^−60 counts as zero: it couldn't
 * change a float32 sum that has a 1 in it, and subnormal numbers are slow. */
static float weigh_span(const struct attention *a, struct room *room, const struct query *pair, u32 which, float largest) {
  vec shift = wasm_f32x4_splat(largest == -__builtin_inff() ? 0 : largest), total = ZERO;
  for (u32 i = 0; i < span_pages(a); i++) {
    if (!(pair[0].sight->slots[i] | pair[1].sight->slots[i])) continue;
    for (u32 key = i * a->page_size; key < (i + 1) * a->page_size; key += 4) {
      vec x = wasm_f32x4_sub(wasm_v128_load(room->scores[which] + key), shift);
      vec weight = wasm_v128_andnot(exp4_of_negative(x), wasm_f32x4_lt(x, wasm_f32x4_const_splat(-60.0f)));
      total = wasm_f32x4_add(total, weight);
      wasm_v128_store(room->weights[key][which], SPLAT_LANE(weight, 0));
      wasm_v128_store(room->weights[key + 1][which], SPLAT_LANE(weight, 1));
      wasm_v128_store(room->weights[key + 2][which], SPLAT_LANE(weight, 2));
      wasm_v128_store(room->weights[key + 3][which], SPLAT_LANE(weight, 3));
    }
  }
  return sum_lanes(total);
}

/* Columns of Σ weight · v over a page for a pair, added to `sums0`, `sums1`: `count` vectors, four or one. */
INLINE void page_sums(const float *v, u32 width, u32 seen, const float (*weights)[2][4], float *sums0,
                      float *sums1, u32 count) {
  vec a0 = wasm_v128_load(sums0), b0 = wasm_v128_load(sums1), a1 = ZERO, a2 = ZERO, a3 = ZERO, b1 = ZERO, b2 = ZERO, b3 = ZERO;
  if (count > 1) {
    a1 = wasm_v128_load(sums0 + 4), a2 = wasm_v128_load(sums0 + 8), a3 = wasm_v128_load(sums0 + 12);
    b1 = wasm_v128_load(sums1 + 4), b2 = wasm_v128_load(sums1 + 8), b3 = wasm_v128_load(sums1 + 12);
  }
  for (; seen; seen >>= 1, v += width, weights++) {
    if (!(seen & 1)) continue; /* what an unseen slot holds may be anything, even NaN */
    vec x = wasm_v128_load((*weights)[0]), y = wasm_v128_load((*weights)[1]), v0 = wasm_v128_load(v);
    a0 = fma(v0, x, a0), b0 = fma(v0, y, b0);
    if (count > 1) {
      vec v1 = wasm_v128_load(v + 4), v2 = wasm_v128_load(v + 8), v3 = wasm_v128_load(v + 12);
      a1 = fma(v1, x, a1), a2 = fma(v2, x, a2), a3 = fma(v3, x, a3);
      b1 = fma(v1, y, b1), b2 = fma(v2, y, b2), b3 = fma(v3, y, b3);
    }
  }
  wasm_v128_store(sums0, a0), wasm_v128_store(sums1, b0);
  if (count > 1) {
    wasm_v128_store(sums0 + 4, a1), wasm_v128_store(sums0 + 8, a2), wasm_v128_store(sums0 + 12, a3);
    wasm_v128_store(sums1 + 4, b1), wasm_v128_store(sums1 + 8, b2), wasm_v128_store(sums1 + 12, b3);
  }
}

static __attribute__((noinline)) void page_sums_16(const float *v, u32 width, u32 seen,
                                                   const float (*weights)[2][4], float *sums0, float *sums1) {
  page_sums(v, width, seen, weights, sums0, sums1, 4);
}

static __attribute__((noinline)) void page_sums_4(const float *v, u32 width, u32 seen,
                                                  const float (*weights)[2][4], float *sums0, float *sums1) {
  page_sums(v, width, seen, weights, sums0, sums1, 1);
}

/* Σ weight · v of a pair over the span. */
static void sum_span(const struct attention *a, const struct room *room, u32 group, const u32 *pages,
                     const struct query *pair, bool first) {
  float *sums0 = pair[0].result->sums, *sums1 = pair[1].result->sums;
  for (u32 at = 0; at < a->width; at += 4) wasm_v128_store(sums0 + at, ZERO), wasm_v128_store(sums1 + at, ZERO);
  for (u32 i = 0; i < span_pages(a); i++) {
    u32 seen = pair[0].sight->slots[i] | pair[1].sight->slots[i], at = 0;
    if (!seen) continue;
    const float *v = a->values + (pages[i] * a->kv_heads + group) * a->page_size * a->width;
    const float(*weights)[2][4] = room->weights + i * a->page_size;
    if (first) touch(v, a->width * a->page_size);
    for (; at + 16 <= a->width; at += 16)
      page_sums_16(v + at, a->width, seen, weights, sums0 + at, sums1 + at);
    for (; at < a->width; at += 4)
      page_sums_4(v + at, a->width, seen, weights, sums0 + at, sums1 + at);
  }
}

/* The results of a pair over one span. A query alone is paired with itself. `first`: keys and values are likely not cached. */
static void attend_span(const struct attention *a, struct room *room, u32 group, const u32 *pages, const struct query *pair,
                        bool first) {
  vec largest[2];
  score_span(a, room, group, pages, pair, first, largest);
  for (u32 which = 0; which < 2; which++) {
    struct result *result = pair[which].result;
    result->largest = max_lanes(largest[which]);
    result->total = weigh_span(a, room, pair, which, result->largest);
  }
  sum_span(a, room, group, pages, pair, first);
}

static void merge(const struct attention *a, struct result *into, const struct result *span) {
  /* What is seen weighs something, and what is no number isn't 0: the largest score may have missed that. */
  if (span->total == 0) return;
  if (into->total == 0) {
    __builtin_memcpy(into, span, (a->width + 2) * sizeof(float));
    return;
  }
  float largest = into->largest > span->largest ? into->largest : span->largest;
  float keep = exp_of(into->largest - largest), gain = exp_of(span->largest - largest);
  vec keeps = wasm_f32x4_splat(keep), gains = wasm_f32x4_splat(gain);
  for (u32 i = 0; i < a->width; i += 4) {
    vec more = wasm_f32x4_mul(wasm_v128_load(span->sums + i), gains);
    wasm_v128_store(into->sums + i, fma(wasm_v128_load(into->sums + i), keeps, more));
  }
  into->largest = largest, into->total = into->total * keep + span->total * gain;
}

static void clear(const struct attention *a, struct result *result) {
  result->largest = -__builtin_inff(), result->total = 0;
  for (u32 i = 0; i < a->width; i += 4) wasm_v128_store(result->sums + i, ZERO);
}

/* A query that sees nothing gets zeros. */
static void finish(const struct attention *a, const struct result *result, u32 row, u32 head) {
  float *y = a->y + (row * a->heads + head) * a->width, largest = result->largest;
  float total = with_sink(a, head, &largest, result->total);
  vec whole = wasm_f32x4_splat(total == 0 ? 1.0f : total);
  vec keep = wasm_f32x4_splat(a->sinks ? exp_of(result->largest - largest) : 1.0f);
  for (u32 i = 0; i < a->width; i += 4)
    wasm_v128_store(y + i, wasm_f32x4_div(wasm_f32x4_mul(wasm_v128_load(result->sums + i), keep), whole));
}

/* One span of a sequence's only row, for the queries of a group. */
static void attend_row(const struct attention *a, struct room *room, u32 sequence, u32 group, u32 span) {
  u32 row = a->query_starts[sequence], heads = heads_per_group(a), first = group * heads;
  const u32 *pages = a->pages + a->page_starts[sequence] + span * span_pages(a);
  look(a, sequence, span, row, room->rows);
  for (u32 i = 0; i < heads; i += 2) {
    struct query pair[2];
    for (u32 k = 0; k < 2; k++) {
      u32 head = first + min_u32(i + k, heads - 1);
      pair[k] = (struct query){a->q + (row * a->heads + head) * a->width, room->rows, partial_at(a, sequence, span, head)};
    }
    attend_span(a, room, group, pages, pair, i == 0);
  }
}

/* Up to eight rows of a sequence, for the queries of a group, over all spans. */
static void attend_tile(const struct attention *a, struct room *room, u32 sequence, u32 group, u32 tile) {
  u32 start = a->query_starts[sequence] + tile * TILE_ROWS, heads = heads_per_group(a);
  u32 rows = min_u32(TILE_ROWS, a->query_starts[sequence + 1] - start), queries = rows * heads;
  for (u32 i = 0; i < queries; i++) clear(a, result_at(a, room->results, i));
  for (u32 span = 0; span < span_count(a, sequence); span++) {
    const u32 *pages = a->pages + a->page_starts[sequence] + span * span_pages(a);
    for (u32 i = 0; i < rows; i++) look(a, sequence, span, start + i, room->rows + i);
    for (u32 i = 0; i < queries; i += 2) {
      struct query pair[2];
      u32 both = min_u32(2, queries - i);
      for (u32 k = 0; k < 2; k++) {
        u32 query = min_u32(i + k, queries - 1), row = query / heads, head = group * heads + query % heads;
        pair[k] = (struct query){a->q + ((start + row) * a->heads + head) * a->width, room->rows + row,
                                 result_at(a, room->results, TILE_ROWS * heads + k)};
      }
      attend_span(a, room, group, pages, pair, i == 0);
      for (u32 k = 0; k < both; k++) merge(a, result_at(a, room->results, i + k), pair[k].result);
    }
  }
  for (u32 i = 0; i < queries; i++)
    finish(a, result_at(a, room->results, i), start + i / heads, group * heads + i % heads);
}

INLINE bool is_single(const struct attention *a, u32 sequence) {
  return a->query_starts[sequence + 1] - a->query_starts[sequence] == 1;
}

static u32 units_of(const struct attention *a, u32 sequence) {
  u32 rows = a->query_starts[sequence + 1] - a->query_starts[sequence];
  return a->kv_heads * (rows == 1 ? span_count(a, sequence) : divide_up(rows, TILE_ROWS));
}

void attention(struct instruction *in, struct worker *me) {
  const struct attention a = *(const struct attention *)in->arguments;
  u32 sequences = a.counts[1], total = 0, sequence = 0, before = 0; /* `before`: units of earlier sequences */
  for (u32 s = 0; s < sequences; s++) total += units_of(&a, s);
  struct units got = {0, 0};
  while (take(in, total, 1, &got)) {
    while (got.begin >= before + units_of(&a, sequence)) before += units_of(&a, sequence++);
    u32 unit = got.begin - before, group = unit % a.kv_heads, part = unit / a.kv_heads;
    if (is_single(&a, sequence))
      attend_row(&a, (struct room *)me->scratch, sequence, group, part);
    else
      attend_tile(&a, (struct room *)me->scratch, sequence, group, part);
  }
}

/* Finish the sequences of one row: merge their spans, head by head. */
void attention_merge(struct instruction *in, struct worker *me) {
  const struct attention a = *(const struct attention *)in->arguments;
  struct result *result = (struct result *)me->scratch;
  u32 total = a.counts[1] * a.heads;
  struct units got = {0, 0};
  for (u32 chunk = chunk_for(total, 4); take(in, total, chunk, &got);)
    for (u32 unit = got.begin; unit < got.end; unit++) {
      u32 sequence = unit / a.heads, head = unit % a.heads;
      if (!is_single(&a, sequence)) continue;
      clear(&a, result);
      for (u32 span = 0; span < span_count(&a, sequence); span++) merge(&a, result, partial_at(&a, sequence, span, head));
      finish(&a, result, a.query_starts[sequence], head);
    }
}
