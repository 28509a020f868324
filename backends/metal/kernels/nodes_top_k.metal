// The K largest of each row in falling order, and where they are; of equal ones the first. The K-th key is found digit by digit,
// then, where only some of its equals fit, the last of their indices; what is left is ranked by counting. `told`: the extent.
threadgroup atomic_uint bins[BINS * COPIES];
threadgroup u32 stretches[STRETCH];
threadgroup u32 keys[K];
threadgroup u32 indices[K];
threadgroup atomic_uint chosen[1];
uint row = threadgroup_position_in_grid.y, lane = thread_position_in_threadgroup.x;
u32 extent = told[0], wanted = K, least = 0, among = 0;
Counts<LOCAL, COPIES> counts = {bins, stretches, lane};
for (uint shift = 32; shift > 0; shift -= 8) {
  counts.restart();
  for (uint i = lane; i < extent; i += LOCAL) {
    u32 key = key_of(x[row * extent + i], TYPE);
    if ((key & known_bits(shift)) == least) counts.add(digit_of(key, shift));
  }
  least |= counts.find(wanted) << (shift - 8);
}
// The last digit's bin counts the keys that equal the least: do all of them fit? Else the first do, by inverted indices.
if (counts.count(least & 255u) > wanted) {
  for (uint shift = 32; shift > 0; shift -= 8) {
    counts.restart();
    for (uint i = lane; i < extent; i += LOCAL)
      if (key_of(x[row * extent + i], TYPE) == least && (~i & known_bits(shift)) == among) counts.add(digit_of(~i, shift));
    among |= counts.find(wanted) << (shift - 8);
  }
}
if (lane == 0) atomic_store_explicit(&chosen[0], 0u, memory_order_relaxed);
threadgroup_barrier(mem_flags::mem_threadgroup);
for (uint i = lane; i < extent; i += LOCAL) {
  u32 key = key_of(x[row * extent + i], TYPE);
  if (key < least || (key == least && ~i < among)) continue;
  uint place = atomic_fetch_add_explicit(&chosen[0], 1u, memory_order_relaxed);
  keys[place] = key;
  indices[place] = i;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
for (uint i = lane; i < K; i += LOCAL) {
  uint rank = 0;
  for (uint j = 0; j < K; ++j) rank += keys[j] > keys[i] || (keys[j] == keys[i] && indices[j] < indices[i]) ? 1 : 0;
  values[row * K + rank] = x[row * extent + indices[i]];
  places[row * K + rank] = indices[i];
}
