// y = x · weightᵀ (+ bias) for many rows of x, on tensor cores by mma. STAGES blocks of 32 columns are in shared memory or on their way
// there, so that memory is busy while tensor cores are.
#include "tile.cuh"

#define TILES (TOKENS / 16)

struct Stage {
  u16 x[PARTS][TOKENS * BLOCK];  // [token][column]
  float2 units[STRETCHES][TOKENS];
  Piece pieces[WARPS][GROUPS];
};

__device__ __forceinline__ void bring(Stage& stage, const Packing& p, const Linear& l, const Own& own, u32 first, u32 block) {
  u32 thread = threadIdx.x, to = thread / 4 * BLOCK + thread % 4 * 8;
  u32 two = 2 * thread % TOKENS, stretch = 2 * thread / TOKENS;
#pragma unroll
  for (u32 part = 0; part < PARTS; part++) {
    size_t row = (size_t)part * l.rows + first + thread / 4;
    copy_async(stage.x[part] + to, l.parts + (row * p.blocks() + block) * BLOCK + thread % 4 * 8);
  }
  if (stretch < STRETCHES)
    copy_async(stage.units[stretch] + two, l.units + (size_t)(block * STRETCHES + stretch) * l.rows + first + two);
  bring_pieces(stage.pieces[thread / 32], p, own, block);
}

#if FORMAT == BF16
#define multiply mma_m16n8k16_bf16
#else
#define multiply mma_m16n8k16
#endif

// Two rows on end, in one access where y allows it: the lanes of a quarter then fill a sector, which two accesses would write twice.
__device__ __forceinline__ void put(const Matrix& m, u32 token, u32 row, float x, float y) {
  float* to = m.y + (size_t)token * m.stride + row;
  bool both = row + 1 < m.rows;
  if (both && m.stride % 2 == 0) {
    *(float2*)to = make_float2(x, y);
  } else {
    to[0] = x;
    if (both) to[1] = y;
  }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)
    linear_tile(Packing p, const __grid_constant__ Matrix a, const __grid_constant__ Matrix b, const __grid_constant__ Matrix c, Linear l) {
  extern __shared__ Stage stages[];
  u32 there = min(l.tokens == nullptr ? l.most : *l.tokens, l.most), first = blockIdx.y * TOKENS;
  if (first >= there) return;
  bool second = !l.act && blockIdx.x >= l.ends[0], third = second && blockIdx.x >= l.ends[1];
  const Matrix& m = third ? c : second ? b : a;
  const Own own(p, m, b, l.act, blockIdx.x - (third ? l.ends[1] : second ? l.ends[0] : 0));
  u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, quarter = lane % 4, blocks = p.blocks();
  float sums[TILES][GROUPS][4] = {};
#pragma unroll
  for (u32 block = 0; block < STAGES - 1; block++) {
    if (block < blocks) bring(stages[block], p, l, own, first, block);
    copy_commit();
  }
  for (u32 block = 0, at = 0; block < blocks; block++, at = at + 1 == STAGES ? 0 : at + 1) {
    copy_wait<STAGES - 2>();
    __syncthreads();
    // Into the stage that everybody has left.
    if (block + STAGES - 1 < blocks) bring(stages[at ? at - 1 : STAGES - 1], p, l, own, first, block + STAGES - 1);
    copy_commit();
    const Stage& stage = stages[at];
    u32 weights[GROUPS][4];
    Factor factors[GROUPS][STRETCHES][2];  // of rows 2c and 2c + 1, whose products a lane has
#pragma unroll
    for (int n = 0; n < GROUPS; n++) {
      const Piece& piece = stage.pieces[warp][n];
      fragments_of(p, piece, lane / 4, quarter, weights[n]);
#pragma unroll
      for (int i = 0; i < 2 * STRETCHES; i++)
        factors[n][i / 2][i % 2] = factor_in(p, own.zeros[n], piece, 2 * quarter + i % 2, block, i / 2);
    }
#pragma unroll
    for (int t = 0; t < TILES; t++) {
      if (first + 16 * t >= there) break;
      u32 token = 16 * t + lane / 4, from = token * BLOCK + 8 * quarter;
      float products[GROUPS][STRETCHES][4] = {};
#pragma unroll
      for (int part = 0; part < PARTS; part++) {
        uint4 upper = *(const uint4*)(stage.x[part] + from), lower = *(const uint4*)(stage.x[part] + from + 8 * BLOCK);
        const u32 x[2][4] = {{upper.x, lower.x, upper.y, lower.y}, {upper.z, lower.z, upper.w, lower.w}};
#pragma unroll
        for (int i = 0; i < 2 * GROUPS; i++) multiply(products[i / 2][i % 2 * SIXTEENS], x[i % 2], weights[i / 2] + i % 2 * 2);
      }
#pragma unroll
      for (int stretch = 0; stretch < STRETCHES; stretch++) {
        const float2 units[2] = {stage.units[stretch][token], stage.units[stretch][token + 8]};
#pragma unroll
        for (int i = 0; i < 4 * GROUPS; i++) {
          Factor f = factors[i / 4][stretch][i % 2];
          float2 unit = units[i / 2 % 2];
          sums[t][i / 4][i % 4] += unit.x * (f.scale * products[i / 4][stretch][i % 4] + f.minimum * unit.y);
        }
      }
    }
  }
#pragma unroll
  for (int n = 0; n < GROUPS; n++) {
    u32 row = (own.first + n) * ROWS + 2 * quarter;
    if ((l.act && n) || row >= m.rows) continue;
    float biases[2] = {bias_of(m, row), bias_of(m, row + 1)};
#pragma unroll
    for (int t = 0; t < 2 * TILES; t++) {
      u32 token = first + 8 * t + lane / 4;
      if (token >= there) continue;
      const float *own_sums = sums[t / 2][n] + t % 2 * 2, *gates = sums[t / 2][1] + t % 2 * 2;
      put(m, token, row, finished(l.act, own_sums[0] + biases[0], gates[0]), finished(l.act, own_sums[1] + biases[1], gates[1]));
    }
  }
}
