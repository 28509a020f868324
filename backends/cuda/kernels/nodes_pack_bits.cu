// Truth values of a row as bits: value i as bit i % 32 of word i / 32, then zeros.
#include "nodes.cuh"

struct Params {
  u32 extent, x, y;  // where each begins
};

extern "C" __global__ void __launch_bounds__(LOCAL, 1) pack_bits(Round round, Params p, const u32* x, u32* y) {
  u32 row = round.row(), words = (p.extent + 31) / 32;
  if (row == ~0u) return;
  for (u32 w = blockIdx.x * LOCAL + threadIdx.x; w < words; w += gridDim.x * LOCAL) {
    u32 word = 0;
    for (u32 i = w * 32; i < min(w * 32 + 32, p.extent); i++) word |= (u32)(x[p.x + (size_t)row * p.extent + i] != 0) << i % 32;
    y[p.y + (size_t)row * words + w] = word;
  }
}
