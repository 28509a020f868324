// A simdgroup takes a row: its largest logits one after the other, of equal ones the lower first. What is in `left` only one lane looks at.
threadgroup u32 left[EXPERTS];
uint row = threadgroup_position_in_grid.y, lane = thread_index_in_simdgroup;
u32 most = 0;
for (uint i = lane; i < EXPERTS; i += 32) {
  left[i] = key_of(as_type<u32>(logits[row * EXPERTS + i]), FLOATS);
  most = max(most, left[i]);
}
float largest = as_type<float>(word_of(simd_max(most))), total = 0.0f, taken = 0.0f, shares[(CHOSEN + 31) / 32];
for (uint i = lane; i < EXPERTS; i += 32) total += metal::precise::exp(logits[row * EXPERTS + i] - largest);
total = simd_sum(total);
for (uint j = 0; j < CHOSEN; ++j) {
  u32 best = 0, place = EXPERTS - 1;
  for (uint i = lane; i < EXPERTS; i += 32) {
    if (left[i] > best) {
      best = left[i];
      place = i;
    }
  }
  for (ushort by = 16; by > 0; by /= 2) {
    u32 other = simd_shuffle_xor(best, by), there = simd_shuffle_xor(place, by);
    if (other > best || (other == best && there < place)) {
      best = other;
      place = there;
    }
  }
  float share = metal::precise::exp(as_type<float>(word_of(best)) - largest);
  taken += share;
  if (lane == j % 32) {
    shares[j / 32] = share;
    experts[row * CHOSEN + j] = place;
  }
  // No number has this key.
  if (lane == place % 32) left[place] = 0;
}
float whole = NORMALISED ? taken : total;
for (uint j = lane; j < CHOSEN; j += 32) weights[row * CHOSEN + j] = shares[j / 32] / whole * numbers[0];
