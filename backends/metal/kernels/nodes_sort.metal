// One pass of a stable radix sort of each row's indices, by the digit of BITS bits at `told[2]` of their keys. A thread takes a
// stretch of the row: it counts its digits, learns where each of them begins, and moves its indices there. The first pass takes
// the indices in order; the last one writes the entries too. `told`: the extent, how many entries are written, and the shift.
threadgroup u32 begins[(1 << BITS) * LOCAL];
threadgroup u32 sums[LOCAL];
constexpr uint DIGITS = 1 << BITS;
uint row = threadgroup_position_in_grid.y, lane = thread_position_in_threadgroup.x;
u32 extent = told[0], kept = told[1], shift = told[2], base = row * extent;
uint stretch = (extent + LOCAL - 1) / LOCAL, begin = min(lane * stretch, extent), end = min(begin + stretch, extent);
for (uint d = 0; d < DIGITS; ++d) begins[d * LOCAL + lane] = 0;
for (uint i = begin; i < end; ++i) {
  u32 key = key_of(x[base + (IS_FIRST ? i : from[base + i])], TYPE);
  ++begins[((FALLING ? ~key : key) >> shift & (DIGITS - 1)) * LOCAL + lane];
}
threadgroup_barrier(mem_flags::mem_threadgroup);
// Counts become places: digit by digit, in each the threads in order. A thread sums DIGITS of them.
u32 total = 0;
for (uint i = lane * DIGITS; i < (lane + 1) * DIGITS; ++i) total += begins[i];
sums[lane] = total;
threadgroup_barrier(mem_flags::mem_threadgroup);
total = 0;
for (uint i = 0; i < lane; ++i) total += sums[i];
for (uint i = lane * DIGITS; i < (lane + 1) * DIGITS; ++i) {
  u32 count = begins[i];
  begins[i] = total;
  total += count;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
for (uint i = begin; i < end; ++i) {
  u32 index = IS_FIRST ? i : from[base + i], word = x[base + index], key = key_of(word, TYPE);
  u32 place = begins[((FALLING ? ~key : key) >> shift & (DIGITS - 1)) * LOCAL + lane]++;
  if (!IS_LAST) {
    to[base + place] = index;
  } else if (place < kept) {
    to[row * kept + place] = index;
    values[row * kept + place] = word;
  }
}
