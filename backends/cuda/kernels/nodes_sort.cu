// One pass of a stable radix sort of each row's indices, by the digit of BITS bits at `shift` of their keys. A thread takes a
// stretch of the row: it counts its digits, learns where each of them begins, and moves its indices there. The first pass
// takes the indices in order; the last one writes the entries too.
#include "nodes.cuh"

#define DIGITS (1 << BITS)

struct Params {
  u32 extent, x, from, to, values;  // where each begins
  u32 kept, shift;                  // the first so many entries are written
};

__device__ __forceinline__ u32 digit(u32 word, u32 shift) {
  u32 key = key_of(word, TYPE);
  return (FALLING ? ~key : key) >> shift & (DIGITS - 1);
}

extern "C" __global__ void __launch_bounds__(LOCAL, 1)
    sort(Round round, Params p, const u32* x, const u32* from, u32* to, u32* values) {
  __shared__ u32 places[DIGITS * LOCAL];
  __shared__ u32 sums[LOCAL];
  u32 row = round.row(), lane = threadIdx.x;
  if (row == ~0u) return;
  const u32 *own = x + p.x + (size_t)row * p.extent, *source = from + p.from + (size_t)row * p.extent;
  u32 stretch = (p.extent + LOCAL - 1) / LOCAL, begin = min(lane * stretch, p.extent), end = min(begin + stretch, p.extent);
  for (u32 d = 0; d < DIGITS; d++) places[d * LOCAL + lane] = 0;
  for (u32 i = begin; i < end; i++) places[digit(own[IS_FIRST ? i : source[i]], p.shift) * LOCAL + lane]++;
  __syncthreads();
  // Counts become places: digit by digit, in each the threads in order. A thread sums DIGITS of them.
  u32 total = 0;
  for (u32 i = lane * DIGITS; i < (lane + 1) * DIGITS; i++) total += places[i];
  sums[lane] = total;
  __syncthreads();
  total = 0;
  for (u32 i = 0; i < lane; i++) total += sums[i];
  for (u32 i = lane * DIGITS; i < (lane + 1) * DIGITS; i++) {
    u32 count = places[i];
    places[i] = total;
    total += count;
  }
  __syncthreads();
  for (u32 i = begin; i < end; i++) {
    u32 index = IS_FIRST ? i : source[i], word = own[index], place = places[digit(word, p.shift) * LOCAL + lane]++;
    if (!IS_LAST) {
      to[p.to + (size_t)row * p.extent + place] = index;
    } else if (place < p.kept) {
      to[p.to + (size_t)row * p.kept + place] = index;
      values[p.values + (size_t)row * p.kept + place] = word;
    }
  }
}
