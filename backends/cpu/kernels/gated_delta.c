/* The gated delta rule, token by token: Gated Delta Networks, arXiv:2412.06464.
 *
 * A unit is 64 columns of a head's matrix, which no other columns meet: S is read and written whole for every token, and a
 * block of 16 columns stays in the first-level cache while a tile of tokens goes by. So a token's result is summed in the same
 * order however the tokens are dealt out to passes. The chunked form (products of matrices over 64 tokens) has as many
 * multiplications here and depends on where chunks begin. */
#include "activations.h"
#include "rows.h"
#include "sequences.h"

enum { BLOCK = 16, PART = 64, TOKENS = 16 };

struct delta {
  const float *qkv, *a, *b, *decay, *dt_bias, *qkv_tail, *a_tail, *b_tail;
  struct places places;
  float *y, *state;
  const u32 *counts;
  u32 key_heads, heads, key_dim, width, length, slots; /* width: of a head's values */
  u32 tiled, log_decay;
  float eps;
};

/* A thread's working memory: a tile of tokens, and a block of the matrix. */
struct room {
  float keep[TOKENS], learn[TOKENS];
  const float *values[TOKENS]; /* of the head */
  float v[TOKENS][BLOCK];
  float y[TOKENS][BLOCK];
  float rest[]; /* S [key_dim][BLOCK]; queries and keys [TOKENS][2][key_dim] */
};

struct unit {
  struct sequence s;
  u32 head, begin, end; /* columns of the head */
};

INLINE float first_lane(vec x) { return wasm_f32x4_extract_lane(x, 0); }

/* ln(1 + e^x) as max(x, 0) + ln(1 + t), t = e^−|x|; ln(1 + t) = 2 artanh(t / (2 + t)), a series that ends soon. */
static float softplus(float x) {
  double t = first_lane(exp4(wasm_f32x4_splat(-__builtin_fabsf(x)))), z = t / (2 + t), zz = z * z, sum = 0;
  for (i32 n = 19; n > 0; n -= 2) sum = sum * zz + 1.0 / n;
  float more = (float)(2 * z * sum);
  /* Neither comparison holds for NaN, which the exponential kept. */
  return x > 0 ? x + more : x <= 0 ? more : x;
}

static float rate_of(const struct delta *a, u32 head) {
  return a->log_decay ? -first_lane(exp4(wasm_f32x4_splat(a->decay[head]))) : a->decay[head];
}

static u32 key_head(const struct delta *a, u32 head) {
  return a->tiled ? head % a->key_heads : head / (a->heads / a->key_heads);
}

/* x divided by its length, times `factor`. */
static void unit_length(const struct delta *a, const float *x, float factor, float *y) {
  vec total = ZERO;
  FOR_VECTORS(i, a->key_dim) {
    vec v = wasm_v128_load(x + i);
    total = fma(v, v, total);
  }
  float sum = sum_lanes(total);
  FOR_REST(i, a->key_dim) sum += x[i] * x[i];
  factor /= __builtin_sqrtf(sum + a->eps);
  FOR_VECTORS(i, a->key_dim) wasm_v128_store(y + i, wasm_f32x4_mul(wasm_v128_load(x + i), wasm_f32x4_splat(factor)));
  FOR_REST(i, a->key_dim) y[i] = x[i] * factor;
}

/* What tokens from `first` on say to the head; the first row of the step is token `replayed`. */
static void read_tokens(const struct delta *a, const struct unit *u, u32 first, u32 count, float rate, struct room *room) {
  u32 keys = a->key_heads * a->key_dim, columns = 2 * keys + a->heads * a->width;
  float *qk = room->rest + a->key_dim * BLOCK;
  for (u32 i = 0; i < count; i++, qk += 2 * a->key_dim) {
    i32 row = (i32)(first + i) - (i32)u->s.replayed;
    const float *qkv = row_of(&u->s, a->qkv, a->qkv_tail, a->length, columns, row);
    const float *q = qkv + key_head(a, u->head) * a->key_dim;
    unit_length(a, q, 1.0f / __builtin_sqrtf((float)a->key_dim), qk);
    unit_length(a, q + keys, 1.0f, qk + a->key_dim);
    room->values[i] = qkv + 2 * keys + u->head * a->width;
    float gate = row_of(&u->s, a->a, a->a_tail, a->length, a->heads, row)[u->head] + a->dt_bias[u->head];
    float learn = row_of(&u->s, a->b, a->b_tail, a->length, a->heads, row)[u->head];
    room->keep[i] = first_lane(exp4(wasm_f32x4_splat(rate * softplus(gate))));
    room->learn[i] = first_lane(sigmoid(wasm_f32x4_splat(learn)));
  }
}

/* kᵀS */
static __attribute__((noinline)) void recall(const float *s, const float *k, u32 key_dim, vec *found) {
  vec a0 = ZERO, a1 = ZERO, a2 = ZERO, a3 = ZERO;
  for (u32 d = 0; d < key_dim; d++, s += BLOCK) {
    vec key = wasm_v128_load32_splat(k + d);
    a0 = fma(wasm_v128_load(s), key, a0), a1 = fma(wasm_v128_load(s + 4), key, a1);
    a2 = fma(wasm_v128_load(s + 8), key, a2), a3 = fma(wasm_v128_load(s + 12), key, a3);
  }
  found[0] = a0, found[1] = a1, found[2] = a2, found[3] = a3;
}

/* S ← keep · S + k ⊗ u, and qᵀS of that. */
static __attribute__((noinline)) void learn(float *s, const float *q, const float *k, u32 key_dim, float keep, const vec *u,
                                            float *y) {
  vec y0 = ZERO, y1 = ZERO, y2 = ZERO, y3 = ZERO, kept = wasm_f32x4_splat(keep), u0 = u[0], u1 = u[1], u2 = u[2], u3 = u[3];
  for (u32 d = 0; d < key_dim; d++, s += BLOCK) {
    vec key = wasm_v128_load32_splat(k + d), query = wasm_v128_load32_splat(q + d);
    vec s0 = fma(key, u0, wasm_f32x4_mul(wasm_v128_load(s), kept));
    wasm_v128_store(s, s0), y0 = fma(query, s0, y0);
    vec s1 = fma(key, u1, wasm_f32x4_mul(wasm_v128_load(s + 4), kept));
    wasm_v128_store(s + 4, s1), y1 = fma(query, s1, y1);
    vec s2 = fma(key, u2, wasm_f32x4_mul(wasm_v128_load(s + 8), kept));
    wasm_v128_store(s + 8, s2), y2 = fma(query, s2, y2);
    vec s3 = fma(key, u3, wasm_f32x4_mul(wasm_v128_load(s + 12), kept));
    wasm_v128_store(s + 12, s3), y3 = fma(query, s3, y3);
  }
  wasm_v128_store(y, y0), wasm_v128_store(y + 4, y1), wasm_v128_store(y + 8, y2), wasm_v128_store(y + 12, y3);
}

static void run_token(const struct delta *a, struct room *room, u32 i) {
  const float *q = room->rest + a->key_dim * (BLOCK + 2 * i), *k = q + a->key_dim;
  vec u[BLOCK / 4], keep = wasm_f32x4_splat(room->keep[i]), gain = wasm_f32x4_splat(room->learn[i]);
  recall(room->rest, k, a->key_dim, u);
  for (u32 n = 0; n < BLOCK / 4; n++)
    u[n] = wasm_f32x4_mul(gain, wasm_f32x4_sub(wasm_v128_load(room->v[i] + 4 * n), wasm_f32x4_mul(keep, u[n])));
  learn(room->rest, q, k, a->key_dim, room->keep[i], u, room->y[i]);
}

INLINE float *matrix_of(const struct delta *a, u32 slot, u32 head) {
  return a->state + (slot * a->heads + head) * a->key_dim * a->width;
}

/* A block of columns out of a matrix, zeros where there is none, or into one. */
static void read_block(const struct delta *a, const float *matrix, u32 column, u32 count, float *s) {
  for (u32 d = 0; d < a->key_dim; d++, s += BLOCK)
    if (matrix && count == BLOCK)
      __builtin_memcpy(s, matrix + d * a->width + column, BLOCK * sizeof(float));
    else
      for (u32 i = 0; i < BLOCK; i++) s[i] = matrix && i < count ? matrix[d * a->width + column + i] : 0;
}

static void write_block(const struct delta *a, const float *s, u32 column, u32 count, float *matrix) {
  for (u32 d = 0; d < a->key_dim; d++)
    if (count == BLOCK)
      __builtin_memcpy(matrix + d * a->width + column, s + d * BLOCK, BLOCK * sizeof(float));
    else
      for (u32 i = 0; i < count; i++) matrix[d * a->width + column + i] = s[d * BLOCK + i];
}

/* A tile of tokens over a block of columns. The matrix comes from `from` and goes to the home's. */
static void run_block(const struct delta *a, const struct unit *u, u32 first, u32 count, u32 column, const float *from,
                      struct room *room) {
  u32 columns = min_u32(BLOCK, u->end - column);
  bool folds = u->s.fold && u->s.fold < a->slots;
  read_block(a, from, column, columns, room->rest);
  if (folds && u->s.folded == 0 && first == 0) write_block(a, room->rest, column, columns, matrix_of(a, u->s.fold, u->head));
  for (u32 i = 0; i < count; i++) {
    for (u32 n = 0; n < BLOCK; n++) room->v[i][n] = n < columns ? room->values[i][column + n] : 0;
    run_token(a, room, i);
    if (folds && u->s.folded == first + i + 1)
      write_block(a, room->rest, column, columns, matrix_of(a, u->s.fold, u->head));
    if (first + i < u->s.replayed) continue;
    float *y = a->y + ((u->s.first + first + i - u->s.replayed) * a->heads + u->head) * a->width + column;
    for (u32 n = 0; n < columns; n++) y[n] = room->y[i][n];
  }
  write_block(a, room->rest, column, columns, matrix_of(a, u->s.home, u->head));
}

static void run_unit(const struct delta *a, const struct unit *u, struct room *room) {
  u32 total = u->s.replayed + u->s.rows, first = 0;
  const float *from = u->s.source && u->s.source < a->slots ? matrix_of(a, u->s.source, u->head) : 0;
  float rate = rate_of(a, u->head);
  do { /* once without any token, too: the state may go to another slot */
    u32 count = min_u32(TOKENS, total - first);
    read_tokens(a, u, first, count, rate, room);
    for (u32 column = u->begin; column < u->end; column += BLOCK) run_block(a, u, first, count, column, from, room);
    from = matrix_of(a, u->s.home, u->head), first += count;
  } while (first < total);
}

void gated_delta(struct instruction *in, struct worker *me) {
  const struct delta a = *(const struct delta *)in->arguments;
  u32 parts = divide_up(a.width, PART), each = a.heads * parts, total = a.counts[1] * each;
  struct units got = {0, 0};
  while (take(in, total, 1, &got)) {
    struct unit u = {sequence_at(&a.places, got.begin / each), got.begin % each / parts, 0, 0};
    u.begin = got.begin % parts * PART, u.end = min_u32(u.begin + PART, a.width);
    if (u.s.home < a.slots) run_unit(&a, &u, (struct room *)me->scratch);
  }
}
