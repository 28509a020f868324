// A token drawn from the last row of each pass: of the logits that a mask leaves, over a temperature, narrowed in up to four
// stages (top-k, top-p, min-p) to those that a draw may take.
//
// Only the first digit of the first stage looks at the whole row. What can still be drawn then goes to a list, key and
// index, and everything else, the noise too, is done for the list alone.
#include "bins.cuh"
#include "random.cuh"

enum Stage : u32 { NO_STAGE, TOP_K, TOP_P, MIN_P };
#define NOWHERE 0xffffffffu

struct Argument {
  u32 start, value;  // where it begins in the inputs, a word for each pass; or NOWHERE, and what it is
  __device__ __forceinline__ u32 of(const u32* inputs, u32 pass) const { return start == NOWHERE ? value : inputs[start + pass]; }
};
struct Params {
  u32 extent, pass_rows, rows, positions, draw_keys, draw;
  float one;  // what a weight of 1 counts
  u32 mask;
  Argument temperature, stages[4];
  u32 list, tokens;
};

// Of a block: bins of counts or of probabilities, and what all threads find together.
struct Shared {
  u64 masses[BINS * COPIES];
  u64 mass_stretches[STRETCH_OF_BINS];
  u32 bins[BINS * COPIES];
  u32 stretches[STRETCH_OF_BINS];
  u32 best, place, listed;
};

struct Row {
  const float* logits;
  const u32* mask;
  float temperature;
  u32* list;  // keys; `extent` words later, indices
  u32 extent;
};

// The keys of entries `at` … `at` + 3; 0, which no number has, past the row's end.
__device__ __forceinline__ void keys_at(const Row& row, u32 at, u32 keys[4]) {
  float x[4];
  if (ALIGNED) {
    float4 four = *(const float4*)(row.logits + at);
    x[0] = four.x, x[1] = four.y, x[2] = four.z, x[3] = four.w;
  } else {
#pragma unroll
    for (u32 j = 0; j < 4; j++) x[j] = row.logits[min(at + j, row.extent - 1)];
  }
  u32 bits = MASK ? row.mask[at / 32] >> at % 32 : 0;
#pragma unroll
  for (u32 j = 0; j < 4; j++) {
    float value = x[j];
    if (MASK == 1 && !(bits >> j & 1)) value = -infinity();
    if (TEMPERED) value = __fdiv_rn(value, row.temperature);
    if (MASK == 2 && !(bits >> j & 1)) value = -infinity();
    keys[j] = at + j < row.extent ? key_of(__float_as_uint(value), FLOATS) : 0;
  }
}

__device__ __forceinline__ float number(u32 key) { return __uint_as_float(word_of(key)); }

// The largest key of all threads, and the least place. Between two calls of one of them threads meet elsewhere.
__device__ __forceinline__ u32 block_most(Shared& s, u32 key) {
  if (threadIdx.x == 0) s.best = 0;
  __syncthreads();
  atomicMax(&s.best, key);
  __syncthreads();
  return s.best;
}
__device__ __forceinline__ u32 block_least(Shared& s, u32 place) {
  if (threadIdx.x == 0) s.place = NOWHERE;
  __syncthreads();
  atomicMin(&s.place, place);
  __syncthreads();
  return s.place;
}

__device__ __forceinline__ void count_key(Shared& s, u32 stage, u32 key, u32 best, u32 shift, float one) {
  u32 place = bin_place(digit_of(key, shift));
  if (stage == TOP_K) {
    atomicAdd(&s.bins[place], 1u);
  } else if (u64 mass = mass_of(exp_below(__fsub_rn(number(key), number(best))), one)) {
    atomicAdd(&s.masses[place], mass);
  }
}
__device__ __forceinline__ void clear(Shared& s, u32 stage) {
  if (stage == TOP_K) clear(s.bins); else clear(s.masses);
}
__device__ __forceinline__ u32 find_digit(Shared& s, u32 stage, u32 shift, float share, u32& wanted, u64& mass) {
  if (stage == TOP_K) return find_bin(s.bins, s.stretches, wanted) << (shift - 8);
  sum_stretches(s.masses, s.mass_stretches);
  if (shift == 32) mass = share_of(total_mass(s.mass_stretches), share);
  return find_mass(s.masses, s.mass_stretches, mass) << (shift - 8);
}

// The keys from `least` on, and where they are, into the list; gives how many there are. Once for a row.
__device__ __forceinline__ u32 make_list(Shared& s, const Row& row, u32 least) {
  if (threadIdx.x == 0) s.listed = 0;
  __syncthreads();
  for (u32 at = 4 * threadIdx.x; at < row.extent; at += 4 * LOCAL) {
    u32 keys[4];
    keys_at(row, at, keys);
    for (u32 j = 0; j < 4; j++)
      if (keys[j] >= max(least, 1u)) {
        u32 place = atomicAdd(&s.listed, 1u);
        row.list[place] = keys[j];
        row.list[place + row.extent] = at + j;
      }
  }
  __syncthreads();
  return s.listed;
}

// What a stage has found so far: the least key that it leaves, and how many keys the list has.
struct Narrowed {
  u32 edge, count;
};

// The least key that a stage leaves of those from `edge` on. The first stage finds a digit in the whole row, then makes the list.
__device__ __forceinline__ Narrowed narrow(Shared& s, const Row& row, float one, u32 stage, u32 argument, u32 best, Narrowed given,
                                           bool is_first) {
  float share = __uint_as_float(argument);
  u32 prefix = 0, count = given.count, wanted = min(max(argument, 1u), row.extent), shift = 32;
  // What leaves all that there is: p from 1 on, k up to the row's length.
  bool all = (stage == TOP_P && !(share < 1.0f)) || (stage == TOP_K && wanted == row.extent) || stage == MIN_P;
  u64 mass = 0;
  if (stage == MIN_P) {
    // Of nothing all is left; of what is no share (negative, infinite, NaN) nothing.
    prefix = share == 0.0f ? 0 : 0xffffffffu;
    if (share > 0.0f && !is_infinite_or_nan(argument)) {
      // The logarithm is of normal numbers.
      bool tiny = share < 1.1754944e-38f;
      float normal = tiny ? __fmul_rn(share, 16777216.0f) : share;
      float least = __fsub_rn(__fadd_rn(number(best), log_normal(normal)), tiny ? 16.635532f : 0.0f);
      prefix = key_of(__float_as_uint(least), FLOATS);
    }
  }
  if (is_first) {
    if (!all) {
      // Counts were made with the maximum; weights need it first.
      if (stage == TOP_P) {
        clear(s, TOP_P);
        for (u32 at = 4 * threadIdx.x; at < row.extent; at += 4 * LOCAL) {
          u32 keys[4];
          keys_at(row, at, keys);
          for (u32 j = 0; j < 4; j++)
            if (keys[j]) count_key(s, TOP_P, keys[j], best, shift, one);
        }
      }
      prefix = find_digit(s, stage, shift, fmaxf(share, 0.0f), wanted, mass);
      shift = 24;
    }
    count = make_list(s, row, prefix);
  }
  for (; !all && shift; shift -= 8) {
    clear(s, stage);
    for (u32 i = threadIdx.x; i < count; i += LOCAL) {
      u32 key = row.list[i];
      if (key >= given.edge && (key & known_bits(shift)) == prefix) count_key(s, stage, key, best, shift, one);
    }
    prefix |= find_digit(s, stage, shift, fmaxf(share, 0.0f), wanted, mass);
  }
  return {max(given.edge, prefix), count};
}

// The listed entry from `edge` on that is largest with its noise, of equal ones the first.
__device__ __forceinline__ u32 drawn(Shared& s, const Row& row, uint2 stream, Narrowed found) {
  u32 best = 0, place = NOWHERE;
  for (u32 i = threadIdx.x; i < found.count; i += LOCAL) {
    u32 key = row.list[i];
    if (key < found.edge) continue;
    u32 index = row.list[row.extent + i];
    u32 noisy = key_of(__float_as_uint(__fadd_rn(number(key), gumbel(stream, index))), FLOATS);
    if (noisy > best || (noisy == best && index < place)) best = noisy, place = index;
  }
  u32 winner = block_most(s, best), chosen = block_least(s, best == winner ? place : NOWHERE);
  return chosen == NOWHERE ? 0 : chosen;
}

extern "C" __global__ void __launch_bounds__(LOCAL, 1)
    sample(Round round, Params p, const float* logits, const u32* inputs, u32* arena, u32* outputs) {
  __shared__ Shared s;
  u32 own = round.row();
  if (own == ~0u) return;
  u32 pass = round.first + own, last = pass * p.pass_rows + p.pass_rows - 1;
  Row row = {logits + (size_t)inputs[p.rows + last] * p.extent, inputs + p.mask + pass * ((p.extent + 31) / 32),
             __uint_as_float(p.temperature.of(inputs, pass)), arena + p.list + (size_t)own * 2 * p.extent, p.extent};
  u32 best = 0, place = NOWHERE;
  if (STAGE_1 == TOP_K) clear(s, TOP_K);
  for (u32 at = 4 * threadIdx.x; at < p.extent; at += 4 * LOCAL) {
    u32 keys[4];
    keys_at(row, at, keys);
    for (u32 j = 0; j < 4; j++) {
      if (STAGE_1 == TOP_K && keys[j]) count_key(s, TOP_K, keys[j], 0, 32, p.one);
      if (keys[j] > best) best = keys[j], place = at + j;
    }
  }
  u32 most = block_most(s, best), token;
  if (is_infinite_or_nan(word_of(most))) {
    // An infinite maximum, or nothing left: the first of those.
    token = block_least(s, best == most ? place : NOWHERE);
  } else {
    const u32 stages[4] = {STAGE_1, STAGE_2, STAGE_3, STAGE_4};
    Narrowed found = {0, 0};
#pragma unroll
    for (int n = 0; n < 4; n++)
      if (stages[n]) found = narrow(s, row, p.one, stages[n], p.stages[n].of(inputs, pass), most, found, n == 0);
    uint2 seed = make_uint2(inputs[p.draw_keys + 2 * last], inputs[p.draw_keys + 2 * last + 1]);
    token = drawn(s, row, threefry(seed, make_uint2(inputs[p.positions + last], p.draw)), found);
  }
  if (threadIdx.x == 0) outputs[p.tokens + pass] = token;
}
