// A token drawn from the last row of each pass: see sample.h. `told`: the extent and the rows of a pass; where rows, positions and draw
// keys begin in the inputs; which draw it is, what a weight of 1 counts, where the mask begins; the temperature and four stages'
// arguments, two words each.
threadgroup atomic_uint bins[BINS * COPIES];
threadgroup u32 stretches[STRETCH];
threadgroup atomic_uint mass_bins[2 * BINS * COPIES];
threadgroup ulong mass_stretches[STRETCH];
threadgroup atomic_uint found[1];
uint pass = threadgroup_position_in_grid.y, lane = thread_position_in_threadgroup.x;
uint extent = told[0], last = pass * told[1] + told[1] - 1;
Sampler<LOCAL, COPIES, MASK, TEMPERED> row = {
  logits + inputs[told[2] + last] * extent, inputs + (MASK != 0 ? told[7] + pass * ((extent + 31) / 32) : 0u), list + pass * 2 * extent,
  as_type<float>(argument_of(told + 8, inputs, pass)), extent, lane,
  {bins, stretches, lane}, {mass_bins, mass_stretches, as_type<float>(told[6]), lane}, found};
u32 best = 0, place = NOWHERE;
if (STAGE_1 == TOP_K) row.counts.restart();
for (uint i = lane; i < extent; i += LOCAL) {
  u32 key = row.key_at(i);
  if (STAGE_1 == TOP_K && key != 0) row.counts.add(digit_of(key, 32));
  if (key > best) {
    best = key;
    place = i;
  }
}
u32 most = row.most(best), token;
if (is_infinite_or_nan(row.number(most))) {
  // An infinite maximum, or nothing left: the first of those.
  token = row.least(best == most ? place : NOWHERE);
} else {
  Narrowed left = {0, 0};
  left = row.narrow(STAGE_1, argument_of(told + 10, inputs, pass), most, left, true);
  if (STAGE_2 != 0) left = row.narrow(STAGE_2, argument_of(told + 12, inputs, pass), most, left, false);
  if (STAGE_3 != 0) left = row.narrow(STAGE_3, argument_of(told + 14, inputs, pass), most, left, false);
  if (STAGE_4 != 0) left = row.narrow(STAGE_4, argument_of(told + 16, inputs, pass), most, left, false);
  Stream seed = {inputs[told[4] + 2 * last], inputs[told[4] + 2 * last + 1]}, counter = {inputs[told[3] + last], told[5]};
  token = row.drawn(threefry(seed, counter), left);
}
if (lane == 0) tokens[pass] = token;
