// y[T·K, N]: of each row of x and each of its K experts. A simdgroup takes ROWS rows of one expert's matrix and one row of x.
uint lane = thread_index_in_simdgroup;
uint pair = thread_position_in_grid.z, first = thread_position_in_grid.y * ROWS;
uint expert = experts[pair], token = OWN ? pair : pair / CHOSEN;
float sums[ROWS] = {};
for (uint unit = lane; unit < (COLUMNS + 7) / 8; unit += 32) {
  float xs[8], total = eight(x, token, unit, COLUMNS, xs);
  for (uint r = 0; r < ROWS; ++r) {
    float ws[8], scale, bias;
    uint row = expert * N + min(first + r, uint(N) - 1);
    Matrix<BITS, GROUP, BIASED, TABLED, ZERO>::unit(w, scales, biases, table, row, unit, COLUMNS, ws, scale, bias);
    float sum = 0.0f;
    for (uint i = 0; i < 8; ++i) sum += ws[i] * xs[i];
    sums[r] += scale * sum + bias * total;
  }
}
for (uint r = 0; r < ROWS; ++r) {
  float sum = simd_sum(sums[r]);
  if (lane == 0 && first + r < N) y[pair * N + first + r] = SHIFTED ? sum + shift[expert * N + first + r] : sum;
}
