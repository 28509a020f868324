// As linear, for many rows of x: a threadgroup of 8 by 16 threads computes 32 rows of w by 64 of x, and each thread 4 by 4 of those.
// A weight is taken apart once for 64 tokens.
uint tokens = x_shape[0];
uint first = threadgroup_position_in_grid.x * 32, token = threadgroup_position_in_grid.y * 64;
uint across = thread_position_in_threadgroup.x, down = thread_position_in_threadgroup.y, local = down * 8 + across;
// A column of padding, so that threads of a simdgroup meet in no bank.
threadgroup float ws[32][33];
threadgroup float xs[64][33];
float sums[4][4] = {};
for (uint column = 0; column < COLUMNS; column += 32) {
  threadgroup_barrier(mem_flags::mem_threadgroup);
  {
    float unit[8], scale, bias;
    uint row = local / 4, from = column / 8 + local % 4;
    if (from * 8 < COLUMNS) {
      Matrix<BITS, GROUP, BIASED, TABLED, ZERO>::unit(w, scales, biases, table, min(first + row, uint(N) - 1), from, COLUMNS, unit, scale, bias);
      for (uint i = 0; i < 8; ++i) ws[row][local % 4 * 8 + i] = from * 8 + i < COLUMNS ? scale * unit[i] + bias : 0.0f;
    } else {
      for (uint i = 0; i < 8; ++i) ws[row][local % 4 * 8 + i] = 0.0f;
    }
  }
  for (uint n = local; n < 64 * 32; n += 128) {
    uint row = n / 32, from = column + n % 32;
    xs[row][n % 32] = from < COLUMNS ? float(x[min(token + row, tokens - 1) * COLUMNS + from]) : 0.0f;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = 0; i < 32; ++i) {
    float from_w[4], from_x[4];
    for (uint n = 0; n < 4; ++n) {
      from_w[n] = ws[across + 8 * n][i];
      from_x[n] = xs[down + 16 * n][i];
    }
    for (uint t = 0; t < 4; ++t)
      for (uint r = 0; r < 4; ++r) sums[t][r] += from_x[t] * from_w[r];
  }
}
for (uint t = 0; t < 4; ++t) {
  for (uint r = 0; r < 4; ++r) {
    uint row = first + across + 8 * r, at = token + down + 16 * t;
    if (row < N && at < tokens) y[at * N + row] = SHIFTED ? sums[t][r] + shift[row] : sums[t][r];
  }
}
