/* Write this pass's keys, values and positions into their pages: K [pages,G,D/4,P,4], V [pages,G,P,D]. */
#include "rows.h"

struct append {
  const float *k, *v;
  const u32 *positions, *write_slots;
  float *keys, *values;
  u32 *key_positions;
  const u32 *rows;
  u32 heads, width, page_size, slots;
};

void kv_append(struct instruction *in, struct worker *me) {
  const struct append a = *(const struct append *)in->arguments;
  struct units got = {0, 0};
  for (u32 chunk = chunk_for(*a.rows, 1); take(in, *a.rows, chunk, &got);)
    for (u32 row = got.begin; row < got.end; row++) {
      u32 slot = a.write_slots[row];
      if (slot >= a.slots) continue; /* never write outside the cache */
      u32 page = slot / a.page_size, place = slot % a.page_size;
      a.key_positions[slot] = a.positions[row];
      for (u32 head = 0; head < a.heads; head++) {
        const float *k = a.k + (row * a.heads + head) * a.width, *v = a.v + (row * a.heads + head) * a.width;
        float *key = a.keys + (page * a.heads + head) * a.width * a.page_size + place * 4;
        float *value = a.values + ((page * a.heads + head) * a.page_size + place) * a.width;
        for (u32 i = 0; i < a.width; i += 4) {
          wasm_v128_store(key + i * a.page_size, wasm_v128_load(k + i));
          wasm_v128_store(value + i, wasm_v128_load(v + i));
        }
      }
    }
}
