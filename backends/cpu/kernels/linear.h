/* What the two kinds of `linear` share. */
#pragma once
#include "crew.h"
#include "prepared.h"
#include "weights.h"

struct linear {
  const u8 *weight, *prepared;
  const float *bias; /* or null */
  float *y;
  const u32 *rows;
  u32 outputs, columns;
  u32 format, zero;
  const u32 *places; /* the row of y for each row of x, or null where they are the same */
};

/* Store the results of one row of x and one strip, which the matrix may end inside. */
INLINE void store_strip(const struct linear *a, u32 row, u32 strip, vec low, vec high) {
  u32 first = strip * STRIP, there = min_u32(STRIP, a->outputs - first);
  float *y = a->y + (a->places ? a->places[row] : row) * a->outputs + first, part[STRIP];
  float *out = there == STRIP ? y : part;
  if (a->bias) {
    float bias[STRIP] = {0};
    for (u32 i = 0; i < there; i++) bias[i] = a->bias[first + i];
    low = wasm_f32x4_add(low, wasm_v128_load(bias)), high = wasm_f32x4_add(high, wasm_v128_load(bias + 4));
  }
  wasm_v128_store(out, low), wasm_v128_store(out + 4, high);
  if (out == part)
    for (u32 i = 0; i < there; i++) y[i] = part[i];
}

/* Store a tile: `sums` has low and high half of each row's strip. */
INLINE void store_tile(const struct linear *a, u32 tile, u32 rows, u32 strip, const vec *sums) {
  for (u32 i = 0; i < min_u32(TILE, rows - tile * TILE); i++)
    store_strip(a, tile * TILE + i, strip, sums[2 * i], sums[2 * i + 1]);
}
