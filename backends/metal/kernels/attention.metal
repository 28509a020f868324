// Attention of ROWS rows of a sequence and TOGETHER heads that share their keys, over the sequence's pages. The threadgroup's PARTS
// simdgroups take 32 keys at a time in turns, a key for each lane; what they found is brought together at the end.
constexpr uint QUERIES = ROWS * TOGETHER, COLUMNS = (WIDTH + 31) / 32;
threadgroup float held[QUERIES * WIDTH];
threadgroup float peaks[PARTS][QUERIES];
threadgroup float totals[PARTS][QUERIES];
threadgroup float parts[PARTS][WIDTH];
uint lane = thread_index_in_simdgroup, part = simdgroup_index_in_threadgroup;
uint tile = threadgroup_position_in_grid.z / (HEADS / TOGETHER), head = threadgroup_position_in_grid.z % (HEADS / TOGETHER) * TOGETHER;
uint kv_head = head / (HEADS / KV_HEADS);
uint first = tiles[4 * tile], count = tiles[4 * tile + 1], sequence = tiles[4 * tile + 2], masked = tiles[4 * tile + 3];
uint begin = page_starts[sequence], entries = page_starts[sequence + 1] - begin, keys_there = entries * PAGE;
float scale = numbers[0], cap = numbers[1];
for (uint n = thread_index_in_threadgroup; n < QUERIES * WIDTH; n += PARTS * 32) {
  uint query = n / WIDTH, row = first + min(query / TOGETHER, count - 1);
  held[n] = q[(row * HEADS + head + query % TOGETHER) * WIDTH + n % WIDTH] * scale;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
float peak[QUERIES], total[QUERIES], sums[QUERIES][COLUMNS] = {};
for (uint n = 0; n < QUERIES; ++n) {
  peak[n] = LEAST;
  total[n] = 0.0f;
}
for (uint base = part * 32; base < keys_there; base += PARTS * 32) {
  uint key = base + lane, entry = min(key / PAGE, entries - 1), slot = key % PAGE, page = pages[begin + entry];
  bool written = key < keys_there && (page_bits[begin + entry] >> slot & 1u) != 0, fresh = (fresh_bits[begin + entry] >> slot & 1u) != 0;
  float score[QUERIES] = {};
  if (written) {
    for (uint vector = 0; vector < WIDTH / VECTOR; ++vector) {
      uint at = (((page * KV_HEADS + kv_head) * (WIDTH / VECTOR) + vector) * PAGE + slot) * VECTOR;
      for (uint i = 0; i < VECTOR; ++i) {
        float value = float(keys[at + i]);
        for (uint n = 0; n < QUERIES; ++n) score[n] += held[n * WIDTH + vector * VECTOR + i] * value;
      }
    }
  }
  float weights[QUERIES];
  bool any = false;
  for (uint n = 0; n < QUERIES; ++n) {
    uint within = min(n / TOGETHER, count - 1), row = first + within;
    bool seen = written && (!fresh || key <= row_index[row]);
    if (WINDOW > 0) seen = seen && int(positions[row]) - int(key_positions[page * PAGE + slot]) < WINDOW;
    if (masked != 0) seen = seen && (mask[masked - 1 + (row - row_starts[sequence]) * entries + entry] >> slot & 1u) != 0;
    if (CAPPED) score[n] = cap * metal::precise::tanh(score[n] / cap);
    float best = max(peak[n], simd_max(seen ? score[n] : LEAST)), kept = metal::precise::exp(peak[n] - best);
    weights[n] = seen ? metal::precise::exp(score[n] - best) : 0.0f;
    total[n] = total[n] * kept + simd_sum(weights[n]);
    for (uint c = 0; c < COLUMNS; ++c) sums[n][c] *= kept;
    peak[n] = best;
    any = any || seen;
  }
  for (ushort j = 0; j < 32; ++j) {
    // What nobody sees may be no number, and times nothing that is none either.
    if (simd_broadcast(uint(any), j) == 0) continue;
    uint at = (simd_broadcast(page, j) * KV_HEADS + kv_head) * PAGE + simd_broadcast(slot, j);
    for (uint n = 0; n < QUERIES; ++n) {
      float weight = simd_broadcast(weights[n], j);
      if (weight == 0.0f) continue;
      for (uint c = 0; c < COLUMNS; ++c)
        if (lane + 32 * c < WIDTH) sums[n][c] += weight * float(values[at * WIDTH + lane + 32 * c]);
    }
  }
}
if (lane == 0) {
  for (uint n = 0; n < QUERIES; ++n) {
    peaks[part][n] = peak[n];
    totals[part][n] = total[n];
  }
}
threadgroup_barrier(mem_flags::mem_threadgroup);
for (uint n = 0; n < QUERIES; ++n) {
  uint own = head + n % TOGETHER;
  float best = SINKS ? max(float(sinks[own]), LEAST) : LEAST;
  for (uint p = 0; p < PARTS; ++p) best = max(best, peaks[p][n]);
  float whole = SINKS ? metal::precise::exp(sinks[own] - best) : 0.0f;
  for (uint p = 0; p < PARTS; ++p) whole += totals[p][n] * metal::precise::exp(peaks[p][n] - best);
  for (uint c = 0; c < COLUMNS; ++c)
    if (lane + 32 * c < WIDTH) parts[part][lane + 32 * c] = sums[n][c] * metal::precise::exp(peak[n] - best);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint column = thread_index_in_threadgroup; column < WIDTH; column += PARTS * 32) {
    float sum = 0.0f;
    for (uint p = 0; p < PARTS; ++p) sum += parts[p][column];
    if (n / TOGETHER < count) y[((first + n / TOGETHER) * HEADS + own) * WIDTH + column] = sum / max(whole, NOTHING);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
