// What Metal's language has without an include, for clang to look at types alone: memories are address spaces, whose pointers
// don't turn into each other's. Nothing is defined, for nothing runs.
#pragma once
#include "metal_types.h"
typedef long int64_t;
// A type apart would do, but this clang computes with one sort of halves only.
typedef _Float16 bfloat16_t;
struct uint3 { uint x, y, z; };

#define device __attribute__((address_space(1)))
#define constant __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))
#define thread

namespace metal {
namespace precise { float rsqrt(float), sqrt(float), exp(float), tanh(float), log(float); }
template <class T> T max(T, T);
template <class T> T min(T, T);
float clamp(float, float, float), abs(float), floor(float), ceil(float), rint(float);
template <class To, class From> To as_type(From);
void threadgroup_barrier(mem_flags);
uint atomic_load_explicit(threadgroup atomic_uint*, memory_order);
void atomic_store_explicit(threadgroup atomic_uint*, uint, memory_order);
uint atomic_fetch_add_explicit(threadgroup atomic_uint*, uint, memory_order);
uint atomic_fetch_max_explicit(threadgroup atomic_uint*, uint, memory_order);
uint atomic_fetch_min_explicit(threadgroup atomic_uint*, uint, memory_order);
template <class T> T simd_broadcast(T, ushort);
template <class T> T simd_shuffle(T, ushort);
template <class T> T simd_shuffle_xor(T, ushort);
template <class T> T simd_sum(T);
template <class T> T simd_max(T);
}  // namespace metal
using namespace metal;
