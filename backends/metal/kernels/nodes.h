// What epilogues' fused kernels sum, and find the best of.

// A sum, and what it rounds away (Knuth's TwoSum): a thread may sum thousands of numbers.
inline void sum_exactly(thread float& total, thread float& loss, float value) {
  float next = total + value, part = next - total;
  float lost = (total - (next - part)) + (value - part);
  total = next;
  loss = loss + lost;
}
// What a thread's sum has rounded away goes back into it, unless that is infinite or not a number.
inline float whole_sum(float total, float loss) { return is_infinite_or_nan(total) ? total : total + loss; }

// The sum of what all threads of a threadgroup have, for each of them; the same in whatever order they run. `room` has two words for
// each of its simdgroups.
template <typename T>
inline T reduce_sum(T value, threadgroup u32* room, uint lane, uint simdgroup, uint simdgroups) {
  for (ushort by = 16; by > 0; by /= 2) value = value + simd_shuffle_xor(value, by);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (lane == 0) room[simdgroup] = as_type<u32>(value);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  T total = T(0);
  for (uint i = 0; i < simdgroups; ++i) total = total + as_type<T>(room[i]);
  return total;
}

struct LargerFloat { static bool better(float x, float y) { return x > y; } };
struct SmallerFloat { static bool better(float x, float y) { return x < y; } };
struct LargerWord { static bool better(u32 x, u32 y) { return x > y; } };
struct SmallerWord { static bool better(u32 x, u32 y) { return x < y; } };
struct LargerSigned { static bool better(u32 x, u32 y) { return int(x) > int(y); } };
struct SmallerSigned { static bool better(u32 x, u32 y) { return int(x) < int(y); } };

// The best value, and of equal ones the lowest index.
template <typename Order, typename T>
inline void reduce_best(thread T& value, thread u32& index, threadgroup u32* room, uint lane, uint simdgroup, uint simdgroups) {
  for (ushort by = 16; by > 0; by /= 2) {
    T other = simd_shuffle_xor(value, by);
    u32 place = simd_shuffle_xor(index, by);
    if (Order::better(other, value) || (other == value && place < index)) {
      value = other;
      index = place;
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (lane == 0) {
    room[simdgroup] = as_type<u32>(value);
    room[simdgroups + simdgroup] = index;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  value = as_type<T>(room[0]);
  index = room[simdgroups];
  for (uint i = 1; i < simdgroups; ++i) {
    T other = as_type<T>(room[i]);
    u32 place = room[simdgroups + i];
    if (Order::better(other, value) || (other == value && place < index)) {
      value = other;
      index = place;
    }
  }
}
