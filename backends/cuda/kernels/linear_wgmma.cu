// y = x · weightᵀ (+ bias) for many rows of x, by Hopper's wgmma: four warps multiply 64 rows of weights, which they hold, by all rows
// of x, which TMA brings to shared memory. A stage has 64 columns; its two blocks of 32 are multiplied while the one before is scaled.
#include "tile.cuh"

#define BLOCKS 2                  // of a stage
#define STEP (BLOCKS * BLOCK)     // columns of a stage: rows of 128 bytes, as the swizzle has them
#define PLANE (TOKENS * STEP)

struct alignas(1024) Stage {
  u16 x[2 * PLANE];  // [high and low][token][column]
  float2 units[BLOCKS][TOKENS];
  Piece pieces[BLOCKS][WARPS][GROUPS];
  u64 arrived;  // of x
};

// Rows of x go to one thread's account; all other copies to each thread's own.
__device__ __forceinline__ void bring(Stage& stage, const TensorMap& x, const Packing& p, const Linear& l, const Own& own, u32 first,
                                      u32 block) {
  if (threadIdx.x == 0) {
    barrier_expect(&stage.arrived, 2 * 2 * PLANE);
    tensor_load(stage.x, x, block * BLOCK, first, 0, &stage.arrived);
  }
#pragma unroll
  for (u32 n = 0; n < BLOCKS; n++) {
    if (block + n >= p.blocks()) break;
    if (threadIdx.x < TOKENS / 2)
      copy_async(stage.units[n] + 2 * threadIdx.x, l.units + (size_t)(block + n) * l.rows + first + 2 * threadIdx.x);
    bring_pieces(stage.pieces[n][threadIdx.x / 32], p, own, block + n);
  }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
    linear_wgmma(Packing p, const __grid_constant__ Matrix a, const __grid_constant__ Matrix b, const __grid_constant__ Matrix c, Linear l, const __grid_constant__ TensorMap x) {
  extern __shared__ uint4 room[];
  Stage* stages = (Stage*)aligned_1024(room);
  u32 there = min(l.tokens == nullptr ? l.most : *l.tokens, l.most), first = blockIdx.y * TOKENS;
  if (first >= there) return;
  bool second = !l.act && blockIdx.x >= l.ends[0], third = second && blockIdx.x >= l.ends[1];
  const Matrix& m = third ? c : second ? b : a;
  const Own own(p, m, b, l.act, blockIdx.x - (third ? l.ends[1] : second ? l.ends[0] : 0));
  u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, quarter = lane % 4, row = lane / 4, blocks = p.blocks();
  if (threadIdx.x < STAGES) barrier_start(&stages[threadIdx.x].arrived);
  __syncthreads();
  float sums[TOKENS / 8][4] = {};
#pragma unroll
  for (u32 n = 0; n < STAGES - 1; n++) {
    if (n * BLOCKS < blocks) bring(stages[n], x, p, l, own, first, n * BLOCKS);
    copy_commit();
  }
  for (u32 block = 0, at = 0, turn = 0; block < blocks; block += BLOCKS) {
    Stage& stage = stages[at];
    copy_wait<STAGES - 2>();
    barrier_wait(&stage.arrived, turn);
    __syncthreads();
    // Into the stage that everybody has left.
    if (block + (STAGES - 1) * BLOCKS < blocks)
      bring(stages[at ? at - 1 : STAGES - 1], x, p, l, own, first, block + (STAGES - 1) * BLOCKS);
    copy_commit();
    float products[BLOCKS][TOKENS / 2];
    u32 weights[BLOCKS][2][4];
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) {
      u32 found[GROUPS][4];
#pragma unroll
      for (int g = 0; g < GROUPS; g++) fragments_of(p, stage.pieces[n][warp][g], row, quarter, found[g]);
      // Of an odd number of blocks the last has nothing beside it.
#pragma unroll
      for (int i = 0; i < 8; i++) weights[n][i / 4][i % 4] = block + n < blocks ? found[i % 2][i / 4 * 2 + i % 4 / 2] : 0;
      wgmma_fence();
#pragma unroll
      for (int part = 0; part < 4; part++)
        wgmma_m64n64k16(products[n], weights[n][part % 2], stage.x + part / 2 * PLANE + n * BLOCK + part % 2 * 16, part != 0);
      wgmma_commit();
    }
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) {
      if (n == 0) wgmma_wait<BLOCKS - 1>(products[n]);
      else wgmma_wait<0>(products[n]);
      if (block + n >= blocks) continue;
      Factor factors[GROUPS];
#pragma unroll
      for (int g = 0; g < GROUPS; g++) factors[g] = factor_in(p, own.zeros[g], stage.pieces[n][warp][g], row, block + n);
#pragma unroll
      for (int t = 0; t < TOKENS / 8; t++) {
        float4 units = *(const float4*)(stage.units[n] + 8 * t + 2 * quarter);  // of two tokens
#pragma unroll
        for (int i = 0; i < 4; i++) {
          Factor f = factors[i / 2];
          sums[t][i] += (i % 2 ? units.z : units.x) * (f.scale * products[n][4 * t + i] + f.minimum * (i % 2 ? units.w : units.y));
        }
      }
    }
    if (++at == STAGES) at = 0, turn ^= 1;
  }
  const float biases[GROUPS] = {bias_of(m, own.first * ROWS + row), bias_of(m, (own.first + 1) * ROWS + row)};
#pragma unroll
  for (int t = 0; t < TOKENS / 8; t++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      u32 of = (own.first + i / 2) * ROWS + row, token = first + 8 * t + 2 * quarter + i % 2;
      if ((l.act && i / 2) || of >= m.rows || token >= there) continue;
      m.y[(size_t)token * m.stride + of] = finished(l.act, sums[t][i] + biases[i / 2], sums[t][i % 2 + 2]);
    }
}
