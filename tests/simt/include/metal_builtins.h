// What Metal's language has without an include, for the emulator: types, positions, collectives, arithmetic. A simdgroup is a warp.
#pragma once
#include "simt.h"

#include "metal_types.h"

struct bfloat16_t {
  uint16_t bits;
  bfloat16_t() = default;
  // To the nearest, of two equally near ones to the even one.
  bfloat16_t(float value) {
    uint32_t word;
    memcpy(&word, &value, 4);
    bits = (word & 0x7fffffffu) > 0x7f800000u ? 0x7fc0 : (word + 0x7fff + (word >> 16 & 1)) >> 16;
  }
  operator float() const {
    uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, 4);
    return value;
  }
};

namespace metal {

// A threadgroup as it was asked for; one at the grid's edge has fewer threads.
inline dim3 full_extent;
inline uint3 position_in_grid() {
  uint3 group = simt::now.block_place, own = simt::now.thread;
  return {group.x * full_extent.x + own.x, group.y * full_extent.y + own.y, group.z * full_extent.z + own.z};
}
inline uint3 position_in_threadgroup() { return simt::now.thread; }

template <class... A> int launch(void (*kernel)(A...), void** arguments, dim3 threads, dim3 group) {
  group = {threads.x < group.x ? threads.x : group.x, threads.y < group.y ? threads.y : group.y, threads.z < group.z ? threads.z : group.z};
  full_extent = group;
  simt::orders_device_apart = true;
  if (!group.x || !group.y || !group.z) return 0;
  dim3 grid = {(threads.x + group.x - 1) / group.x, (threads.y + group.y - 1) / group.y, (threads.z + group.z - 1) / group.z};
  return simt::launch(kernel, arguments, grid, group, 0, threads);
}

namespace precise {
inline float rsqrt(float x) { return 1.0f / sqrtf(x); }
inline float sqrt(float x) { return sqrtf(x); }
inline float exp(float x) { return expf(x); }
inline float tanh(float x) { return tanhf(x); }
inline float log(float x) { return logf(x); }
}  // namespace precise

template <class T> T max(T x, T y) { return x < y ? y : x; }
template <class T> T min(T x, T y) { return y < x ? y : x; }
inline float clamp(float x, float least, float most) { return min(max(x, least), most); }
inline float abs(float x) { return fabsf(x); }
inline float floor(float x) { return floorf(x); }
inline float ceil(float x) { return ceilf(x); }
inline float rint(float x) { return rintf(x); }
template <class To, class From> To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To found;
  memcpy(&found, &from, sizeof found);
  return found;
}

inline void threadgroup_barrier(mem_flags flags, int line = __builtin_LINE()) {
  if (!((int)flags & (int)mem_flags::mem_threadgroup)) simt::fail("line %d: a barrier that doesn't order threadgroup memory", line);
  if ((int)flags & (int)mem_flags::mem_device) simt::now.block->orders_device = true;
  simt::block_sync(line);
}
// Whoever loads or stores beside others' stores without a barrier between them may see either: a traced build takes that for a race.
// What reads, changes and writes at once is none beside what does so too.
inline uint atomic_load_explicit(atomic_uint* place, memory_order) { return (uint)*place; }
inline void atomic_store_explicit(atomic_uint* place, uint value, memory_order) { *place = (atomic_uint)value; }
SIMT_ATOMIC inline uint atomic_fetch_add_explicit(atomic_uint* place, uint value, memory_order) {
  simt::atomic_touch(place, sizeof *place);
  uint old = (uint)*place;
  *place = (atomic_uint)(old + value);
  return old;
}
SIMT_ATOMIC inline uint atomic_fetch_max_explicit(atomic_uint* place, uint value, memory_order) {
  simt::atomic_touch(place, sizeof *place);
  uint old = (uint)*place;
  if (old < value) *place = (atomic_uint)value;
  return old;
}
SIMT_ATOMIC inline uint atomic_fetch_min_explicit(atomic_uint* place, uint value, memory_order) {
  simt::atomic_touch(place, sizeof *place);
  uint old = (uint)*place;
  if (value < old) *place = (atomic_uint)value;
  return old;
}
// What lane `from` has, where there is one.
template <class T> T of_lane(T value, int from, int operation, int line) {
  bool there = 0 <= from && from < 32 && simt::now.fiber->warp->alive >> from & 1;
  if (!there) simt::fail("line %d: what lane %d has, which isn't there", line, from);
  auto slots = simt::exchange(~0u, &value, sizeof value, operation, line);
  return simt::slot_value<T>(slots[from]);
}
template <class T> T simd_broadcast(T value, ushort from, int line = __builtin_LINE()) { return of_lane(value, from, 10, line); }
template <class T> T simd_shuffle(T value, ushort from, int line = __builtin_LINE()) { return of_lane(value, from, 11, line); }
template <class T> T simd_shuffle_xor(T value, ushort by, int line = __builtin_LINE()) {
  return of_lane(value, simt::now.fiber->lane ^ by, 12, line);
}
template <class T, class Operation> T of_all(T value, int operation, int line, Operation combined) {
  uint lanes = simt::now.fiber->warp->alive;
  auto slots = simt::exchange(~0u, &value, sizeof value, operation, line);
  T found = simt::slot_value<T>(slots[__builtin_ctz(lanes)]);
  for (lanes &= lanes - 1; lanes; lanes &= lanes - 1) found = combined(found, simt::slot_value<T>(slots[__builtin_ctz(lanes)]));
  return found;
}
template <class T> T simd_sum(T value, int line = __builtin_LINE()) { return of_all(value, 13, line, [](T x, T y) { return x + y; }); }
template <class T> T simd_max(T value, int line = __builtin_LINE()) { return of_all(value, 14, line, max<T>); }

}  // namespace metal

using namespace metal;

#define SIMT_METAL(...)                                                                                     \
  SIMT_EXPORT int simt_launch_metal(void** arguments, dim3 threads, dim3 group, size_t) {                   \
    return metal::launch(__VA_ARGS__, arguments, threads, group);                                           \
  }

#define thread_position_in_grid (metal::position_in_grid())
#define thread_position_in_threadgroup (metal::position_in_threadgroup())
#define threadgroup_position_in_grid (simt::now.block_place)
#define threadgroups_per_grid (simt::now.grid_extent)
#define thread_index_in_threadgroup ((uint)(simt::now.fiber - simt::now.block->fibers))
#define thread_index_in_simdgroup ((uint)simt::now.fiber->lane)
#define simdgroup_index_in_threadgroup ((uint)simt::now.fiber->warp->number)

// The processor has one memory: see metal_spaces.h.
#define device
#define constant
#define thread
