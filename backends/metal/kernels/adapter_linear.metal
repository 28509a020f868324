// y[T, N] = matrices[n − 1] · x[t], n = adapters[t], added to base[T, N] where there is one. A simdgroup takes an output of a row.
uint lane = thread_index_in_simdgroup, row = thread_position_in_grid.z, output = thread_position_in_grid.y;
uint adapter = adapters[row];
float sum = 0.0f;
if (adapter != 0) {
  uint begin = ((adapter - 1) * N + output) * COLUMNS;
  for (uint i = lane; i < COLUMNS; i += 32) sum += matrices[begin + i] * x[row * COLUMNS + i];
  sum = simd_sum(sum);
}
if (lane == 0) y[row * N + output] = ADDED ? base[row * N + output] + sum : sum;
