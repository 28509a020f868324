// y[T, N] = x[T, COLUMNS] · wᵀ (+ shift). A simdgroup takes ROWS rows of w and TOKENS rows of x; its lanes share the columns, eight
// at a time, so that what all lanes load together is a stretch of a row.
uint lane = thread_index_in_simdgroup;
uint tokens = x_shape[0];
uint first = thread_position_in_grid.y * ROWS, token = thread_position_in_grid.z * TOKENS;
float sums[ROWS][TOKENS] = {};
for (uint unit = lane; unit < (COLUMNS + 7) / 8; unit += 32) {
  float xs[TOKENS][8], total[TOKENS];
  // Rows past the last one are read as that one, and what comes of them is thrown away.
  for (uint t = 0; t < TOKENS; ++t) total[t] = eight(x, min(token + t, tokens - 1), unit, COLUMNS, xs[t]);
  for (uint r = 0; r < ROWS; ++r) {
    float ws[8], scale, bias;
    Matrix<BITS, GROUP, BIASED, TABLED, ZERO>::unit(w, scales, biases, table, min(first + r, uint(N) - 1), unit, COLUMNS, ws, scale, bias);
    for (uint t = 0; t < TOKENS; ++t) {
      float sum = 0.0f;
      for (uint i = 0; i < 8; ++i) sum += ws[i] * xs[t][i];
      sums[r][t] += scale * sum + bias * total[t];
    }
  }
}
for (uint r = 0; r < ROWS; ++r) {
  for (uint t = 0; t < TOKENS; ++t) {
    float sum = simd_sum(sums[r][t]);
    if (lane == 0 && first + r < N && token + t < tokens) y[(token + t) * N + first + r] = SHIFTED ? sum + shift[first + r] : sum;
  }
}
