// A threadgroup of THREADS threads takes a row of WIDTH values.
threadgroup float room[THREADS / 32];
uint row = threadgroup_position_in_grid.y, local = thread_position_in_threadgroup.x;
float squares = 0.0f;
for (uint i = local; i < WIDTH; i += THREADS) squares += x[row * WIDTH + i] * x[row * WIDTH + i];
squares = whole_sum(squares, room, thread_index_in_simdgroup, simdgroup_index_in_threadgroup, THREADS / 32);
float root = metal::precise::rsqrt(squares / float(WIDTH) + numbers[0]);
for (uint i = local; i < WIDTH; i += THREADS) y[row * WIDTH + i] = x[row * WIDTH + i] * root * (weight[i] + numbers[1]);
