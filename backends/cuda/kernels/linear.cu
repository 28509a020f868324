// y = x · weightᵀ (+ bias): of up to three matrices that multiply the same rows, or of a gated unit's two. TOKENS rows of x
// go in one block.
#include "product.cuh"

struct Linear {
  const float* x;
  const u32* tokens;  // the true number, or null where there are `most`
  u32 most;
  u32 act;     // of a gated unit, or 0
  u32 splits;  // warps that share a row group
  u32 repeats; // row groups that a warp takes, one after the other
  u32 ends[3]; // of the matrices' blocks
};

// A table's floats take more registers than codes: four rows of them already leave no room for a second block.
extern "C" __global__ void __launch_bounds__(256, TOKENS == 8 || (FORMAT == LOOKUP4 && TOKENS == 4) ? 1 : 2)
    linear(Packing p, Matrix a, Matrix b, Matrix c, Linear l) {
  __shared__ alignas(16) char room[ROOM];
  __shared__ float partial[WARPS * TOKENS * ROWS];
  u32 there = min(l.tokens == nullptr ? l.most : *l.tokens, l.most), first = blockIdx.y * TOKENS;
  if (first >= there) return;
  const float* x[TOKENS];
#pragma unroll
  for (int t = 0; t < TOKENS; t++) x[t] = first + t < there ? l.x + (size_t)(first + t) * p.columns : nullptr;
  bool second = !l.act && blockIdx.x >= l.ends[0], third = second && blockIdx.x >= l.ends[1];
  const Matrix& m = third ? c : second ? b : a;
  u32 block = blockIdx.x - (third ? l.ends[1] : second ? l.ends[0] : 0);
  u32 warp = threadIdx.x >> 5, lane = threadIdx.x & 31, split = warp % l.splits, together = WARPS / l.splits;
  u32 groups = (m.rows + ROWS - 1) / ROWS, width = p.blocks() * BLOCK;
  Brought brought(room);
  u32 loaded = ~0u;
  for (u32 repeat = 0; repeat < l.repeats; repeat++) {
    u32 group = (block * l.repeats + repeat) * together + warp / l.splits;
    float sums[TOKENS] = {}, gates[TOKENS];
#pragma unroll 1
    for (int pass = l.act ? 0 : 1; pass < 2; pass++) {
      const Matrix& own = l.act && pass ? b : m;
#pragma unroll
      for (int t = 0; t < TOKENS; t++) gates[t] = sums[t], sums[t] = 0.0f;
      for (u32 at = 0; at < width; at += STRETCH) {
        Stretch stretch = {at, min(width - at, (u32)(STRETCH))};
        if (loaded != at) {
          __syncthreads();
          bring(brought, x, stretch, p.columns);
          loaded = at;
          __syncthreads();
        }
        if (group < groups) add_group(brought, p, own, stretch, group, split, l.splits, sums);
      }
      join(sums, split, l.splits, partial);
    }
    u32 row = group * ROWS + lane;
    if (split != 0 || lane >= ROWS || row >= m.rows) continue;
#pragma unroll
    for (int t = 0; t < TOKENS; t++) {
      if (first + t >= there) continue;
      float sum = sums[t] + (m.bias == nullptr ? 0.0f : m.bias[row]);
      m.y[(size_t)(first + t) * m.stride + row] = l.act ? activated(l.act, gates[t]) * sums[t] : sum;
    }
  }
}
