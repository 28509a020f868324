/* Prepare the left operand of `linear`: see prepared.h. */
#include "experts.h"

struct prepare {
  const float *x;
  u8 *prepared;
  const u32 *rows;
  u32 columns, group;
};

/* The codes of a group: `q` 16 or 32 of them. Returns their scale, which is NaN if a value is NaN or infinite: codes can't say
 * so, and the products must. */
INLINE float quantise_group(const float *x, u32 group, i16 *q, i32 *sum) {
  vec largest = ZERO, nothing = ZERO;
  for (u32 i = 0; i < group; i += 4) {
    vec v = wasm_v128_load(x + i);
    largest = larger(largest, wasm_f32x4_abs(v));
    nothing = wasm_f32x4_add(nothing, wasm_f32x4_mul(v, ZERO));
  }
  float most = max_lanes(wasm_f32x4_add(largest, nothing));
  vec inverse = wasm_f32x4_splat(most > 0x1p-100f ? 32767.0f / most : 0.0f), total = ZERO;
  for (u32 i = 0; i < group; i += 8) {
    vec a = wasm_f32x4_nearest(wasm_f32x4_mul(wasm_v128_load(x + i), inverse));
    vec b = wasm_f32x4_nearest(wasm_f32x4_mul(wasm_v128_load(x + i + 4), inverse));
    vec ai = wasm_i32x4_relaxed_trunc_f32x4(a), bi = wasm_i32x4_relaxed_trunc_f32x4(b);
    total = wasm_i32x4_add(total, wasm_i32x4_add(ai, bi));
    wasm_v128_store(q + i, wasm_i16x8_narrow_i32x4(ai, bi));
  }
  *sum = wasm_i32x4_extract_lane(total, 0) + wasm_i32x4_extract_lane(total, 1) + wasm_i32x4_extract_lane(total, 2) +
         wasm_i32x4_extract_lane(total, 3);
  return most > 0x1p-100f ? most / 32767.0f : most;
}

static void vector_group(const float *x, u32 group, u8 *header, u8 *pairs) {
  i16 q[32];
  i32 sum;
  float scale = quantise_group(x, group, q, &sum);
  wasm_v128_store(header, wasm_f32x4_splat(scale));
  wasm_v128_store(header + 16, wasm_f32x4_splat(scale * (float)sum));
  wasm_v128_store(header + 32, wasm_i32x4_splat(sum));
  for (u32 i = 0; i < group; i += 2) wasm_v128_store(pairs + i * 8, wasm_v128_load32_splat(q + i));
}

/* One row of a tile; its lane of each vector. */
static void tile_row(const struct prepare *a, const float *x, u8 *tile, u32 lane) {
  u8 *pairs = tile + a->columns / a->group * TILE_HEADER;
  for (u32 g = 0; g < a->columns / a->group; g++) {
    i16 q[32];
    i32 sum = 0;
    float scale = x ? quantise_group(x + g * a->group, a->group, q, &sum) : 0;
    float *header = (float *)(tile + g * TILE_HEADER);
    header[lane] = scale, header[TILE + lane] = scale * (float)sum;
    u32 *out = (u32 *)(pairs + g * a->group * 8) + lane;
    for (u32 i = 0; i < a->group; i += 2) out[i * 2] = x ? *(const u32 *)(q + i) : 0;
  }
}

void prepare_affine(struct instruction *in, struct worker *me) {
  const struct prepare a = *(const struct prepare *)in->arguments;
  u32 rows = *a.rows, groups = a.columns / a.group;
  bool vector = is_vector_form(rows);
  u32 units = vector ? rows * groups : divide_up(rows, TILE), bytes = prepared_bytes(vector, true, a.columns, a.group);
  struct units got = {0, 0};
  for (u32 chunk = chunk_for(units, vector ? 6 : 1); take(in, units, chunk, &got);)
    for (u32 unit = got.begin; unit < got.end; unit++)
      if (vector) {
        u32 row = unit / groups, g = unit % groups;
        u8 *out = a.prepared + row * bytes;
        vector_group(a.x + row * a.columns + g * a.group, a.group, out + g * VECTOR_HEADER,
                     out + groups * VECTOR_HEADER + g * a.group * 8);
      } else {
        for (u32 lane = 0; lane < TILE; lane++) {
          u32 row = unit * TILE + lane;
          tile_row(&a, row < rows ? a.x + row * a.columns : 0, a.prepared + unit * bytes, lane);
        }
      }
}

static void dense_row(const struct prepare *a, const float *x, u8 *out) {
  for (u32 i = 0; i < a->columns; i++) wasm_v128_store(out + i * 16, wasm_v128_load32_splat(x + i));
}

static void dense_tile_row(const struct prepare *a, const float *x, u8 *out, u32 lane) {
  for (u32 i = 0; i < a->columns; i++) ((float *)out)[i * TILE + lane] = x ? x[i] : 0;
}

void prepare_dense(struct instruction *in, struct worker *me) {
  const struct prepare a = *(const struct prepare *)in->arguments;
  u32 rows = *a.rows;
  bool vector = is_vector_form(rows);
  u32 units = vector ? rows : divide_up(rows, TILE), bytes = prepared_bytes(vector, false, a.columns, 0);
  struct units got = {0, 0};
  while (take(in, units, 1, &got)) {
    u8 *out = a.prepared + got.begin * bytes;
    if (vector) {
      dense_row(&a, a.x + got.begin * a.columns, out);
    } else {
      for (u32 lane = 0; lane < TILE; lane++) {
        u32 row = got.begin * TILE + lane;
        dense_tile_row(&a, row < rows ? a.x + row * a.columns : 0, out, lane);
      }
    }
  }
}

struct prepare_experts {
  struct prepare of; /* it has no rows of its own: the mixture says which there are */
  struct mixture mixture;
  u32 sharing; /* places that share a row of x */
};

INLINE void write_row(const struct prepare *a, const float *x, u8 *out) {
  if (!a->group) {
    dense_row(a, x, out);
    return;
  }
  u32 groups = a->columns / a->group;
  for (u32 g = 0; g < groups; g++)
    vector_group(x + g * a->group, a->group, out + g * VECTOR_HEADER, out + groups * VECTOR_HEADER + g * a->group * 8);
}

INLINE void write_tile_row(const struct prepare *a, const float *x, u8 *out, u32 lane) {
  if (a->group)
    tile_row(a, x, out, lane);
  else
    dense_tile_row(a, x, out, lane);
}

/* The unit-th row or tile of one expert's rows. */
static void prepare_unit(const struct prepare_experts *a, u32 expert, u32 unit, u8 *out) {
  u32 rows = rows_of_expert(&a->mixture, expert), per = is_vector_form(rows) ? 1 : TILE;
  const u32 *places = a->mixture.order + a->mixture.starts[expert];
  for (u32 lane = 0; lane < per; lane++) {
    u32 row = unit * per + lane;
    const float *x = row < rows ? a->of.x + places[row] / a->sharing * a->of.columns : 0;
    if (per == 1)
      write_row(&a->of, x, out);
    else
      write_tile_row(&a->of, x, out, lane);
  }
}

void prepare_experts(struct instruction *in, struct worker *me) {
  const struct prepare_experts a = *(const struct prepare_experts *)in->arguments;
  bool affine = a.of.group != 0;
  u32 places = places_of(&a.mixture), total = min_u32(places, VECTOR_ROWS * a.mixture.experts + places / TILE);
  u32 expert = 0, before = 0; /* `before`: units of earlier experts */
  struct units got = {0, 0};
  while (take(in, total, 1, &got)) {
    for (; expert < a.mixture.experts; expert++) {
      u32 slots = slots_for(rows_of_expert(&a.mixture, expert));
      if (got.begin < before + slots) break;
      before += slots;
    }
    if (expert == a.mixture.experts) continue; /* fewer slots than there may be */
    u32 unit = got.begin - before, vector = is_vector_form(rows_of_expert(&a.mixture, expert));
    u8 *first = a.of.prepared + before * prepared_bytes(true, affine, a.of.columns, a.of.group);
    prepare_unit(&a, expert, unit, first + unit * prepared_bytes(vector, affine, a.of.columns, a.of.group));
  }
}
