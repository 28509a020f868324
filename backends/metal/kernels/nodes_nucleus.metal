// The largest entry of each row down to which the entries, likeliest first, have probability p: four digits of its key are found
// from the top, by the probability that each digit holds. `told`: the extent, how many rows share a p, and what a weight of 1 counts.
threadgroup atomic_uint bins[2 * BINS * COPIES];
threadgroup ulong stretches[STRETCH];
threadgroup atomic_uint ends[2];
uint row = threadgroup_position_in_grid.y, lane = thread_position_in_threadgroup.x;
u32 extent = told[0], high = 0, low = 0xffffffffu;
float share = as_type<float>(argument[row / told[1]]);
for (uint i = lane; i < extent; i += LOCAL) {
  u32 key = key_of(x[row * extent + i], FLOATS);
  high = max(high, key);
  low = min(low, key);
}
if (lane == 0) {
  atomic_store_explicit(&ends[0], 0u, memory_order_relaxed);
  atomic_store_explicit(&ends[1], 0xffffffffu, memory_order_relaxed);
}
threadgroup_barrier(mem_flags::mem_threadgroup);
atomic_fetch_max_explicit(&ends[0], high, memory_order_relaxed);
atomic_fetch_min_explicit(&ends[1], low, memory_order_relaxed);
threadgroup_barrier(mem_flags::mem_threadgroup);
u32 found = loaded(&ends[0]);
if (!(share < 1.0f)) {
  found = loaded(&ends[1]);
} else if (!is_infinite_or_nan(as_type<float>(word_of(found)))) {
  // With an infinite maximum nothing else is possible.
  float best = as_type<float>(word_of(found));
  Masses<LOCAL, COPIES> masses = {bins, stretches, as_type<float>(told[2]), lane};
  ulong wanted = 0;
  u32 prefix = 0;
  for (uint shift = 32; shift > 0; shift -= 8) {
    masses.restart();
    for (uint i = lane; i < extent; i += LOCAL) {
      u32 word = x[row * extent + i], key = key_of(word, FLOATS);
      if ((key & known_bits(shift)) == prefix) masses.add(digit_of(key, shift), exp_below(as_type<float>(word) - best));
    }
    masses.sum();
    if (shift == 32) wanted = share_of(masses.total(), max(share, 0.0f));
    prefix |= masses.find(wanted) << (shift - 8);
  }
  found = prefix;
}
if (lane == 0) y[row] = word_of(found);
