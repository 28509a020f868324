// The sum of two rows of WIDTH values, and its norm: as rms_norm.
threadgroup float room[THREADS / 32];
uint row = threadgroup_position_in_grid.y, local = thread_position_in_threadgroup.x;
float squares = 0.0f;
for (uint i = local; i < WIDTH; i += THREADS) {
  float sum = x[row * WIDTH + i] + residual[row * WIDTH + i];
  total[row * WIDTH + i] = sum;
  squares += sum * sum;
}
squares = whole_sum(squares, room, thread_index_in_simdgroup, simdgroup_index_in_threadgroup, THREADS / 32);
float root = metal::precise::rsqrt(squares / float(WIDTH) + numbers[0]);
// What this thread itself wrote.
for (uint i = local; i < WIDTH; i += THREADS) y[row * WIDTH + i] = total[row * WIDTH + i] * root * (weight[i] + numbers[1]);
