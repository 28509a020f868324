/* Attention of a pass's rows over their sequences' pages.
 *
 * A sequence's page table is taken in spans of 256 keys. Within a span the softmax is taken with the span's own maximum;
 * spans are then merged in order (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018). A sequence
 * with one row (decode) has its spans computed by different threads and merged by `attention_merge`; otherwise a thread
 * takes eight rows through all spans. Both do the same operations in the same order, so a row's result doesn't depend on
 * what else was in the pass. Heads that share keys and values are computed in pairs of queries that share the loads. */
#include "elementary.h"
#include "crew.h"

enum { SPAN_KEYS = 256, MOST_SPAN_PAGES = SPAN_KEYS / 4, TILE_ROWS = 8, PAIR = 2 };

struct attention {
  const float *q, *keys, *values;
  const u32 *key_positions, *positions, *row_index, *query_starts, *page_starts, *pages, *page_bits, *fresh_bits;
  float *y;
  float *partials; /* [span + sequence][head][width + 2]: maximum, total, sums */
  const u32 *counts; /* rows, sequences, … */
  u32 heads, kv_heads, width, page_size, page_count, window;
  float scale, softcap;
};

/* The visible pages of a span, for one row. */
struct span {
  u32 count;
  u32 page[MOST_SPAN_PAGES];
  u32 seen[MOST_SPAN_PAGES]; /* a bit a slot */
};

/* What a span, or all spans so far, gives for one query: the largest score, Σe^(score − largest), Σe^(…)·v. */
struct result {
  float largest, total;
  float sums[];
};

/* A thread's working memory; sizes are those that `attention_scratch` of the host asks for. */
struct room {
  struct span spans[PAIR];
  struct span both; /* pages that some query of a pair sees, slots that some query sees */
  float scores[PAIR][SPAN_KEYS];
  float weights[SPAN_KEYS][PAIR][4]; /* equal lanes */
  float results[]; /* one for each query of a tile, then two of the present span */
};

INLINE u32 result_floats(const struct attention *a) { return a->width + 4; }
INLINE struct result *result_at(const struct attention *a, float *base, u32 index) {
  return (struct result *)(base + index * result_floats(a));
}

INLINE u32 span_pages(const struct attention *a) { return SPAN_KEYS / a->page_size; }
INLINE u32 full_page(const struct attention *a) { return a->page_size == 32 ? ~0u : (1u << a->page_size) - 1; }

static u32 inside_window(const struct attention *a, u32 page, u32 position) {
  u32 inside = 0;
  for (u32 slot = 0; slot < a->page_size; slot++) {
    int64_t distance = (int64_t)position - (int64_t)a->key_positions[page * a->page_size + slot];
    inside |= (u32)(distance < (int64_t)a->window) << slot;
  }
  return inside;
}

/* Which keys of span number `number` of `sequence` row `row` sees. */
static void look(const struct attention *a, u32 sequence, u32 row, u32 number, struct span *span) {
  u32 first = a->page_starts[sequence] + number * span_pages(a);
  u32 last = min_u32(first + span_pages(a), a->page_starts[sequence + 1]);
  u32 key = number * SPAN_KEYS, own = a->row_index[row];
  span->count = 0;
  for (u32 entry = first; entry < last; entry++, key += a->page_size) {
    u32 seen = a->page_bits[entry] & full_page(a), fresh = a->fresh_bits[entry];
    u32 until = own < key ? 0 : own - key + 1; /* slots whose index is at most the row's */
    if (until < a->page_size) seen &= ~fresh | ((1u << until) - 1);
    if (!seen || a->pages[entry] >= a->page_count) continue;
    if (a->window) seen &= inside_window(a, a->pages[entry], a->positions[row]);
    if (!seen) continue;
    span->page[span->count] = a->pages[entry], span->seen[span->count] = seen, span->count++;
  }
}

/* Pages of either of two rows of a sequence, in order: a page of one is at the same or a later place of the table. */
static void unite(const struct span *one, const struct span *two, struct span *both) {
  u32 i = 0, k = 0, n = 0;
  while (i < one->count || k < two->count) {
    bool has_one = i < one->count, has_two = k < two->count;
    if (has_one && has_two && one->page[i] == two->page[k]) {
      both->page[n] = one->page[i], both->seen[n++] = one->seen[i++] | two->seen[k++];
    } else if (has_one) {
      both->page[n] = one->page[i], both->seen[n++] = one->seen[i++];
    } else {
      both->page[n] = two->page[k], both->seen[n++] = two->seen[k++];
    }
  }
  both->count = n;
}
