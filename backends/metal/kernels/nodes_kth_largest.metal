// The k-th largest of each row: four digits of its key are found from the top. `told`: the extent, how many rows share a k, and
// whether k is signed.
threadgroup atomic_uint bins[BINS * COPIES];
threadgroup u32 stretches[STRETCH];
uint row = threadgroup_position_in_grid.y, lane = thread_position_in_threadgroup.x;
u32 extent = told[0], k = argument[row / told[1]], wanted = min(max(k, 1u), extent), prefix = 0;
if (told[2] != 0 && int(k) < 1) wanted = 1;
Counts<LOCAL, COPIES> counts = {bins, stretches, lane};
for (uint shift = 32; shift > 0; shift -= 8) {
  counts.restart();
  for (uint i = lane; i < extent; i += LOCAL) {
    u32 key = key_of(x[row * extent + i], FLOATS);
    if ((key & known_bits(shift)) == prefix) counts.add(digit_of(key, shift));
  }
  prefix |= counts.find(wanted) << (shift - 8);
}
if (lane == 0) y[row] = word_of(prefix);
