// What CUDA C++ has without an include, for the emulator: vectors, indices, barriers, collectives, atomics, arithmetic.
#pragma once
#include "simt.h"

#ifdef SIMT_TRACE
// In a traced build a vector is read and written by one access, as on a card: a compiler for the CPU would make it several.
#define SIMT_WHOLE SIMT_UNTRACED __attribute__((noinline))
#define SIMT_VECTOR(NAME, GIVEN, ...) \
  NAME() = default; \
  NAME GIVEN : __VA_ARGS__ {} \
  SIMT_WHOLE NAME(const NAME& other) { \
    simt::touch(&other, sizeof other, false, __builtin_return_address(0)); \
    memcpy((void*)this, &other, sizeof other); \
  } \
  SIMT_WHOLE NAME& operator=(const NAME& other) { \
    simt::touch(&other, sizeof other, false, __builtin_return_address(0)); \
    simt::touch(this, sizeof other, true, (char*)__builtin_return_address(0) + 1); \
    memcpy((void*)this, &other, sizeof other); \
    return *this; \
  }
#else
#define SIMT_VECTOR(NAME, GIVEN, ...)
#endif
struct alignas(8) float2 { float x, y; SIMT_VECTOR(float2, (float x, float y), x(x), y(y)) };
struct alignas(16) float4 { float x, y, z, w; SIMT_VECTOR(float4, (float x, float y, float z, float w), x(x), y(y), z(z), w(w)) };
struct alignas(8) int2 { int x, y; SIMT_VECTOR(int2, (int x, int y), x(x), y(y)) };
struct alignas(16) int4 { int x, y, z, w; SIMT_VECTOR(int4, (int x, int y, int z, int w), x(x), y(y), z(z), w(w)) };
struct alignas(8) uint2 { unsigned x, y; SIMT_VECTOR(uint2, (unsigned x, unsigned y), x(x), y(y)) };
struct alignas(16) uint4 { unsigned x, y, z, w; SIMT_VECTOR(uint4, (unsigned x, unsigned y, unsigned z, unsigned w), x(x), y(y), z(z), w(w)) };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

#define threadIdx (simt::now.thread)
#define blockIdx (simt::now.block_place)
#define blockDim (simt::now.block_extent)
#define gridDim (simt::now.grid_extent)
#define __syncthreads() simt::block_sync(__LINE__)

template <class T> inline T __int_as(unsigned word) { T value; memcpy(&value, &word, 4); return value; }
inline float __uint_as_float(unsigned word) { return __int_as<float>(word); }
inline float __int_as_float(int word) { return __int_as<float>((unsigned)word); }
inline unsigned __float_as_uint(float value) { unsigned word; memcpy(&word, &value, 4); return word; }
inline int __float_as_int(float value) { return (int)__float_as_uint(value); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline int __float2int_rn(float x) { return (int)nearbyintf(x); }
inline int __float2int_rz(float x) { return x != x ? 0 : x >= 2147483648.0f ? 0x7fffffff : x < -2147483648.0f ? (int)0x80000000u : (int)x; }
inline unsigned __float2uint_rz(float x) { return !(x > 0) ? 0u : x >= 4294967296.0f ? 0xffffffffu : (unsigned)x; }
inline float __int2float_rn(int x) { return (float)x; }
inline float __uint2float_rn(unsigned x) { return (float)x; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline unsigned __brev(unsigned x) { unsigned y = 0; for (int i = 0; i < 32; i++) y |= (x >> i & 1u) << (31 - i); return y; }
inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((uint64_t)x * y >> 32); }
inline int __dp4a(int x, int y, int sum) {
  for (int i = 0; i < 32; i += 8) sum += (int)(int8_t)(x >> i) * (int)(int8_t)(y >> i);
  return sum;
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  uint64_t bytes = (uint64_t)y << 32 | x;
  unsigned found = 0;
  for (int i = 0; i < 4; i++) {
    unsigned nibble = selector >> 4 * i & 15, byte = (unsigned)(bytes >> 8 * (nibble & 7)) & 255;
    found |= (nibble & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
  }
  return found;
}
inline void sincospif(float x, float* sine, float* cosine) {
  double angle = 3.14159265358979323846 * (double)x;
  *sine = (float)sin(angle), *cosine = (float)cos(angle);
}
template <class T> inline T min(T x, T y) { return y < x ? y : x; }
template <class T> inline T max(T x, T y) { return x < y ? y : x; }
template <class T> __forceinline__ T __ldg(const T* place) { return *place; }

inline void __syncwarp(unsigned mask = ~0u, int line = __builtin_LINE()) { simt::warp_sync(mask, simt::SYNCWARP, line); }
template <class T> inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32, int line = __builtin_LINE()) {
  int own = simt::now.fiber->lane;
  auto slots = simt::exchange(mask, &value, sizeof value, 2, line);
  return simt::slot_value<T>(slots[(own & ~(width - 1)) | (lane & (width - 1))]);
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32, int line = __builtin_LINE()) {
  int own = simt::now.fiber->lane, other = own ^ by;
  auto slots = simt::exchange(mask, &value, sizeof value, 3, line);
  return simt::slot_value<T>(slots[other / width == own / width ? other : own]);
}
template <class T> inline T __shfl_down_sync(unsigned mask, T value, int by, int width = 32, int line = __builtin_LINE()) {
  int own = simt::now.fiber->lane;
  auto slots = simt::exchange(mask, &value, sizeof value, 4, line);
  return simt::slot_value<T>(slots[(own & (width - 1)) + by < width ? own + by : own]);
}
template <class T> inline T __shfl_up_sync(unsigned mask, T value, int by, int width = 32, int line = __builtin_LINE()) {
  int own = simt::now.fiber->lane;
  auto slots = simt::exchange(mask, &value, sizeof value, 5, line);
  return simt::slot_value<T>(slots[(own & (width - 1)) >= by ? own - by : own]);
}
inline unsigned __ballot_sync(unsigned mask, int holds, int line = __builtin_LINE()) {
  uint32_t bit = holds != 0;
  unsigned lanes = mask & simt::now.fiber->warp->alive, found = 0;
  auto slots = simt::exchange(mask, &bit, 4, 6, line);
  for (; lanes; lanes &= lanes - 1) found |= simt::slot_value<uint32_t>(slots[__builtin_ctz(lanes)]) << __builtin_ctz(lanes);
  return found;
}
inline int __any_sync(unsigned mask, int holds, int line = __builtin_LINE()) { return __ballot_sync(mask, holds, line) != 0; }
inline int __all_sync(unsigned mask, int holds, int line = __builtin_LINE()) { return !__ballot_sync(mask, !holds, line); }

#define SIMT_CHANGE(NAME, ...) \
  template <class T> SIMT_ATOMIC T NAME(T* place, T value) { \
    simt::atomic_touch(place, sizeof value); \
    T old = *place; \
    __VA_ARGS__; \
    return old; \
  }
SIMT_CHANGE(atomicAdd, *place = old + value)
SIMT_CHANGE(atomicMax, if (old < value) *place = value)
SIMT_CHANGE(atomicMin, if (value < old) *place = value)
