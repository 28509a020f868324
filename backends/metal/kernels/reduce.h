// The sum of what all threads of a threadgroup have, for each of them. `room` has a float for each of its simdgroups.
inline float whole_sum(float value, threadgroup float* room, uint lane, uint simdgroup, uint simdgroups) {
  value = simd_sum(value);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (lane == 0) room[simdgroup] = value;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float total = 0.0f;
  for (uint i = 0; i < simdgroups; ++i) total += room[i];
  return total;
}
