// The gated delta rule: a simdgroup has one column of a head's state, its lanes the rows of it. Sequences are told in `talks`: first
// row, rows, source, home, fold, start, replayed, folded.
constexpr uint OWN = KEY_DIM / 32;
uint lane = thread_index_in_simdgroup, column = thread_position_in_grid.y;
uint sequence = thread_position_in_grid.z / HEADS, head = thread_position_in_grid.z % HEADS;
uint key_head = TILED ? head % KEY_HEADS : head / (HEADS / KEY_HEADS);
int first = talks[8 * sequence], rows = talks[8 * sequence + 1], source = talks[8 * sequence + 2], home = talks[8 * sequence + 3];
int fold = talks[8 * sequence + 4], start = talks[8 * sequence + 5], replayed = talks[8 * sequence + 6], folded = talks[8 * sequence + 7];
float rate = LOG_DECAY ? -metal::precise::exp(decay[head]) : decay[head];
float own[OWN];
for (uint i = 0; i < OWN; ++i) {
  uint row = lane + 32 * i;
  own[i] = source != 0 ? state[((uint(source) * HEADS + head) * KEY_DIM + row) * VALUE_DIM + column] : 0.0f;
}
for (int n = 0; n <= replayed + rows; ++n) {
  if (fold != 0 && n == folded)
    for (uint i = 0; i < OWN; ++i) folds[((sequence * HEADS + head) * KEY_DIM + lane + 32 * i) * VALUE_DIM + column] = own[i];
  if (n == replayed + rows) break;
  bool past = n < replayed;
  int place = start - replayed + n;
  // A token before the context began is zeros.
  bool there = !past || place >= 0;
  uint at = past ? uint(home) * LENGTH + uint((place % LENGTH + LENGTH) % LENGTH) : uint(first + n - replayed);
  float q[OWN], k[OWN], q_length = 0.0f, k_length = 0.0f;
  for (uint i = 0; i < OWN; ++i) {
    uint from = at * WIDTH + key_head * KEY_DIM + lane + 32 * i;
    // Not by ?:, which the two arrays may be too different for: one may lie in another address space.
    q[i] = k[i] = 0.0f;
    if (there && past) {
      q[i] = qkv_tail[from];
      k[i] = qkv_tail[from + KEY_HEADS * KEY_DIM];
    } else if (there) {
      q[i] = qkv[from];
      k[i] = qkv[from + KEY_HEADS * KEY_DIM];
    }
    q_length += q[i] * q[i];
    k_length += k[i] * k[i];
  }
  q_length = metal::precise::sqrt(simd_sum(q_length) + numbers[0]) * metal::precise::sqrt(float(KEY_DIM));
  k_length = metal::precise::sqrt(simd_sum(k_length) + numbers[0]);
  uint value_at = at * WIDTH + 2 * KEY_HEADS * KEY_DIM + head * VALUE_DIM + column, gate_at = at * HEADS + head;
  float value = 0.0f, step = dt_bias[head], gate = 0.0f;
  if (there && past) {
    value = qkv_tail[value_at];
    step += a_tail[gate_at];
    gate = b_tail[gate_at];
  } else if (there) {
    value = qkv[value_at];
    step += a[gate_at];
    gate = b[gate_at];
  }
  float soft = max(step, 0.0f) + metal::precise::log(1.0f + metal::precise::exp(-abs(step)));
  float keep = metal::precise::exp(rate * soft), learn = 1.0f / (1.0f + metal::precise::exp(-gate)), known = 0.0f, found = 0.0f;
  for (uint i = 0; i < OWN; ++i) {
    own[i] *= keep;
    known += k[i] / k_length * own[i];
  }
  float wanted = learn * (value - simd_sum(known));
  for (uint i = 0; i < OWN; ++i) {
    own[i] += k[i] / k_length * wanted;
    found += q[i] / q_length * own[i];
  }
  found = simd_sum(found);
  if (lane == 0 && !past) y[(uint(first + n - replayed) * HEADS + head) * VALUE_DIM + column] = found;
}
for (uint i = 0; i < OWN; ++i) homes[((sequence * HEADS + head) * KEY_DIM + lane + 32 * i) * VALUE_DIM + column] = own[i];
