// Stands in for backends/cuda/kernels/ptx.cuh, whose functions are written in PTX: the same, as exact arithmetic on the CPU.
#pragma once

inline float half_to_float(unsigned short bits) { _Float16 half; memcpy(&half, &bits, 2); return (float)half; }
inline unsigned short float_to_half(float value) {
  _Float16 half = (_Float16)value;
  unsigned short bits;
  memcpy(&bits, &half, 2);
  return bits;
}

inline unsigned subtract_halves(unsigned x, unsigned y) {
  unsigned low = float_to_half(half_to_float((unsigned short)x) - half_to_float((unsigned short)y));
  return low | (unsigned)float_to_half(half_to_float((unsigned short)(x >> 16)) - half_to_float((unsigned short)(y >> 16))) << 16;
}

// Lane 4g + t has rows g and g + 8 and columns 2t, 2t + 1 of each eight: see the PTX manual, "Matrix Fragments for
// mma.m16n8k16". One lane multiplies for all, in float32.
template <class Widen> inline void multiply_by_warp(Widen widen, float d[4], const unsigned a[4], const unsigned b[2], int line) {
  float own[12];
  for (int i = 0; i < 12; i++) {
    unsigned pair = i < 8 ? a[i / 2] : b[i / 2 - 4];
    own[i] = widen((unsigned short)(i % 2 ? pair >> 16 : pair));
  }
  int lane = simt::now.fiber->lane;
  auto slots = simt::exchange(~0u, own, sizeof own, 7, line);
  simt::Warp* warp = simt::now.fiber->warp;
  if (lane == 0) {
    float x[16][16], w[16][8];
    for (int owner = 0; owner < 32; owner++) {
      const float* given = (const float*)slots[owner];
      int row = owner / 4, k = owner % 4 * 2;
      for (int i = 0; i < 8; i++) x[row + i / 2 % 2 * 8][k + i / 4 * 8 + i % 2] = given[i];
      for (int i = 0; i < 4; i++) w[k + i / 2 * 8 + i % 2][row] = given[8 + i];
    }
    for (int row = 0; row < 16; row++) {
      float sums[8] = {};
      for (int k = 0; k < 16; k++)
        for (int n = 0; n < 8; n++) sums[n] += x[row][k] * w[k][n];
      memcpy(&warp->products[row * 8], sums, sizeof sums);
    }
  }
  simt::warp_sync(~0u, 8, line);
  for (int i = 0; i < 4; i++) d[i] += warp->products[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2];
  simt::warp_sync(~0u, 9, line);
}
inline void mma_m16n8k16(float d[4], const unsigned a[4], const unsigned b[2], int line = __builtin_LINE()) {
  multiply_by_warp(half_to_float, d, a, b, line);
}
inline void mma_m16n8k16_bf16(float d[4], const unsigned a[4], const unsigned b[2], int line = __builtin_LINE()) {
  multiply_by_warp([](unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }, d, a, b, line);
}

// What runs on its own is done when it is waited for and not before: who forgets to wait reads what was there. async.cpp has how.
inline void copy_async(void* shared, const void* global) { simt::copy(shared, global); }
inline void copy_commit() { simt::commit_copies(); }
template <int PENDING> inline void copy_wait() { simt::wait_for_copies(PENDING); }

inline void* aligned_1024(void* shared) { return (void*)(((uintptr_t)shared + 1023) & ~1023ul); }

using TensorMap = simt::TensorMap;
inline void barrier_start(unsigned long long* barrier) { simt::barrier_start(barrier); }
inline void barrier_expect(unsigned long long* barrier, unsigned bytes) { simt::barrier_expect(barrier, bytes); }
inline void barrier_wait(unsigned long long* barrier, unsigned parity, int line = __builtin_LINE()) {
  simt::barrier_wait(barrier, parity, line);
}
inline void tensor_load(void* shared, const TensorMap& map, int x, int y, int z, unsigned long long* barrier) {
  simt::tensor_load(shared, map, x, y, z, barrier);
}

inline void wgmma_fence() { simt::products_fence(); }
inline void wgmma_commit() { simt::commit_products(); }
template <int PENDING> inline void wgmma_wait(float d[32], int line = __builtin_LINE()) { simt::wait_for_products(PENDING, line); }
inline void wgmma_m64n64k16(float d[32], const unsigned a[4], const void* b, bool adds) { simt::multiply(d, a, b, adds); }
