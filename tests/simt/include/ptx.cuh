// Stands in for backends/cuda/kernels/ptx.cuh, whose functions are written in PTX: the same, as exact arithmetic on the CPU.
#pragma once

inline float half_to_float(unsigned short bits) { _Float16 half; memcpy(&half, &bits, 2); return (float)half; }
inline unsigned short float_to_half(float value) {
  _Float16 half = (_Float16)value;
  unsigned short bits;
  memcpy(&bits, &half, 2);
  return bits;
}

// Lane 4g + t has rows g and g + 8 and columns 2t, 2t + 1 of each eight: see the PTX manual, "Matrix Fragments for mma.m16n8k16".
inline void mma_m16n8k16(float d[4], const unsigned a[4], const unsigned b[2], int line = __builtin_LINE()) {
  unsigned given[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  int lane = simt::now.fiber->lane;
  auto slots = simt::exchange(~0u, given, sizeof given, 7, line);
  auto half_of = [&](int owner, int word, int k) {
    unsigned pair = ((unsigned*)slots[owner])[word];
    return half_to_float((unsigned short)(k & 1 ? pair >> 16 : pair));
  };
  for (int i = 0; i < 4; i++) {
    int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    float sum = d[i];
    for (int k = 0; k < 16; k++)
      sum += half_of(row % 8 * 4 + k % 8 / 2, row / 8 + k / 8 * 2, k) * half_of(column * 4 + k % 8 / 2, 4 + k / 8, k);
    d[i] = sum;
  }
}

// A copy is made when it is waited for and not before: who forgets to wait reads what was there.
inline void copy_async(void* shared, const void* global) {
  auto& groups = simt::now.fiber->copies;
  if (groups.empty()) groups.emplace_back();
  if ((uintptr_t)shared % 16 || (uintptr_t)global % 16) simt::fail("cp.async of an address that 16 does not divide");
  groups.back().push_back({shared, global, 16});
}
inline void copy_commit() {
  auto& groups = simt::now.fiber->copies;
  groups.resize(groups.empty() ? 2 : groups.size() + 1);
}
template <int PENDING> inline void copy_wait() {
  auto& groups = simt::now.fiber->copies;
  while (groups.size() > PENDING + 1) {
    for (auto& copy : groups.front()) memcpy(copy.target, copy.source, copy.size);
    groups.erase(groups.begin());
  }
}
