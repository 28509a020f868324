// y = x · weightᵀ (+ bias) for many rows of x, on tensor cores: a block has 64 rows of x by 128 rows of weights, or by 64 of each of a
// gated unit's two.
//
// Codes are whole numbers, exact as halves. A value of x becomes two halves, high + low, scaled by a power of two for 32 columns: what
// is lost is less than a float's rounding of a sum. Products of 32 columns are summed by mma, then scaled by their group's factors.
// Which columns an mma takes is free, if x and weights agree: lane 4r + c has columns 8c … 8c + 7 of row r, as they lie in memory, so
// that weights go from global memory into registers and no further.
#include "weights.cuh"

#define WARPS 8
#define TOKENS 64
#define TILES (TOKENS / 16)
#define GROUPS 2  // row groups of a warp: with a gate, one of each matrix

struct Linear {
  const float* x;
  const u32* tokens;  // the true number, or null where there are `most`
  u32 most, act;
  u32 ends[3];  // of the matrices' blocks
};

// 32 columns of x, as the lanes want them: [token][column], high and low halves.
struct Stage {
  u16 high[TOKENS * BLOCK], low[TOKENS * BLOCK];
  float unit[TOKENS], sums[TOKENS];  // what 1 stands for; the sum of the scaled columns
};

// A thread has eight columns of a row of x, four threads all 32.
__device__ __forceinline__ void fill(Stage& stage, const Linear& l, u32 columns, u32 first, u32 there, u32 block) {
  u32 token = threadIdx.x / 4, column = block * BLOCK + threadIdx.x % 4 * 8;
  const float* x = l.x + (size_t)(first + token) * columns + column;
  float values[8], largest = 0.0f, sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    values[i] = first + token < there && column + i < columns ? __ldg(x + i) : 0.0f;
    largest = fmaxf(largest, fabsf(values[i]));
  }
  largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 1));
  largest = fmaxf(largest, __shfl_xor_sync(ALL_LANES, largest, 2));
  // The largest becomes 2^14 … 2^15; what is nothing, or too small for a factor, stays as it is.
  int power = min(max((int)(__float_as_uint(largest) >> 23) - 127, -100), 120);
  float by = largest > 0.0f ? __int_as_float((14 - power + 127) << 23) : 1.0f;
  u32 highs[4], lows[4];
#pragma unroll
  for (int i = 0; i < 8; i++) {
    float scaled = values[i] * by;
    u16 high = float_to_half(scaled), low = float_to_half(scaled - half_to_float(high));
    sum += scaled;
    highs[i / 2] = i % 2 ? highs[i / 2] | (u32)high << 16 : high;
    lows[i / 2] = i % 2 ? lows[i / 2] | (u32)low << 16 : low;
  }
  u32 at = token * BLOCK + threadIdx.x % 4 * 8;
  *(uint4*)(stage.high + at) = make_uint4(highs[0], highs[1], highs[2], highs[3]);
  *(uint4*)(stage.low + at) = make_uint4(lows[0], lows[1], lows[2], lows[3]);
  sum += __shfl_xor_sync(ALL_LANES, sum, 1);
  sum += __shfl_xor_sync(ALL_LANES, sum, 2);
  if (threadIdx.x % 4 == 0) stage.unit[token] = 1.0f / by, stage.sums[token] = sum;
}

#if QUANTISED
#define OFFSET (FORMAT == AFFINE8 || FORMAT == LOOKUP4 ? 128 : 0)  // added to codes, so that they are unsigned bytes

// Codes of columns 8c … 8c + 7 of a block, plus OFFSET, a byte each.
__device__ __forceinline__ uint2 bytes_of(const Packing& p, const Matrix& m, u32 row, u32 block, u32 c) {
#if FORMAT == AFFINE8
  size_t item = ((size_t)(row / ROWS) * p.items() + 2 * block + c / 2) * ROWS + row % ROWS;
  return __ldg((const uint2*)(m.codes + item) + c % 2);
#else
  size_t item = ((size_t)(row / ROWS) * p.items() + block) * ROWS + row % ROWS;
  u32 word = __ldg((const u32*)(m.codes + item) + c), even = word & 0x0f0f0f0f, odd = word >> 4 & 0x0f0f0f0f;
#if FORMAT == AFFINE4
  return make_uint2(__byte_perm(even, odd, 0x5140), __byte_perm(even, odd, 0x7362));
#elif FORMAT == LOOKUP4
  return make_uint2(looked_up(p, word & 0xffff) ^ 0x80808080, looked_up(p, word >> 16) ^ 0x80808080);
#elif FORMAT == AFFINE5
  u32 high = word_of(p, m.scales, row, p.scale_words + block) >> 2 * c;
  return make_uint2(even | (high & 0x01010101) << 4, odd | (high >> 1 & 0x01010101) << 4);
#else
  u32 high = word_of(p, m.scales, row, p.scale_words + 2 * block + c / 2) >> 4 * (c % 2);
  return make_uint2(even | (high & 0x03030303) << 4, odd | (high >> 2 & 0x03030303) << 4);
#endif
#endif
}

// As halves: a byte behind 0x64 is 1024 more than itself.
__device__ __forceinline__ void fragments_of(const Packing& p, const Matrix& m, u32 row, u32 block, u32 c, u32 found[4]) {
  uint2 bytes = bytes_of(p, m, row, block, c);
  const u32 zero = OFFSET ? 0x64806480 : 0x64006400;
  found[0] = subtract_halves(__byte_perm(bytes.x, 0x64646464, 0x4140), zero);
  found[1] = subtract_halves(__byte_perm(bytes.x, 0x64646464, 0x4342), zero);
  found[2] = subtract_halves(__byte_perm(bytes.y, 0x64646464, 0x4140), zero);
  found[3] = subtract_halves(__byte_perm(bytes.y, 0x64646464, 0x4342), zero);
}
#else
__device__ __forceinline__ void fragments_of(const Packing& p, const Matrix& m, u32 row, u32 block, u32 c, u32 found[4]) {
  uint4 words = item_of(p, m.codes, row, 4 * block + c);
  found[0] = words.x, found[1] = words.y, found[2] = words.z, found[3] = words.w;
}
#endif

// Two weights of a group of columns, those of rows 2c and 2c + 1, whose products a lane has.
struct Factors {
  Factor first, second;
};
__device__ __forceinline__ Factors factors_of(const Packing& p, const Matrix& m, u32 group, u32 c, u32 block) {
#if QUANTISED
  u32 row = group * ROWS + 2 * c, columns = block * BLOCK / p.group;
  return {factor_of(p, m, row, columns), factor_of(p, m, row + 1, columns)};
#else
  return {{1.0f, 0.0f}, {1.0f, 0.0f}};
#endif
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
    linear_tile(Packing p, Matrix a, Matrix b, Matrix c, Linear l) {
  __shared__ Stage stages[2];
  u32 there = min(l.tokens == nullptr ? l.most : *l.tokens, l.most), first = blockIdx.y * TOKENS;
  if (first >= there) return;
  bool second = !l.act && blockIdx.x >= l.ends[0], third = second && blockIdx.x >= l.ends[1];
  const Matrix& m = third ? c : second ? b : a;
  u32 tile = blockIdx.x - (third ? l.ends[1] : second ? l.ends[0] : 0), lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  u32 row_groups = (m.rows + ROWS - 1) / ROWS, own = (tile * WARPS + warp) * (l.act ? 1 : GROUPS), quarter = lane % 4;
  float sums[TILES][GROUPS][4] = {};
  for (u32 block = 0; block < p.blocks(); block++) {
    Stage& stage = stages[block % 2];
    fill(stage, l, p.columns, first, there, block);
    __syncthreads();
    u32 weights[GROUPS][4];
    Factors factors[GROUPS];
#pragma unroll
    for (int n = 0; n < GROUPS; n++) {
      // Past the end the last group stands in: its products go nowhere.
      u32 group = min(l.act ? own : own + n, row_groups - 1);
      const Matrix& of = l.act && n ? b : m;
      fragments_of(p, of, group * ROWS + lane / 4, block, quarter, weights[n]);
      factors[n] = factors_of(p, of, group, quarter, block);
    }
#pragma unroll
    for (int t = 0; t < TILES; t++) {
      if (first + 16 * t >= there) break;
      u32 token = 16 * t + lane / 4, at = token * BLOCK + 8 * quarter;
      uint4 high[2], low[2];
#pragma unroll
      for (int half = 0; half < 2; half++) {
        high[half] = *(const uint4*)(stage.high + at + half * 8 * BLOCK);
        low[half] = *(const uint4*)(stage.low + at + half * 8 * BLOCK);
      }
      const u32 x[4][4] = {{high[0].x, high[1].x, high[0].y, high[1].y}, {high[0].z, high[1].z, high[0].w, high[1].w},
                           {low[0].x, low[1].x, low[0].y, low[1].y}, {low[0].z, low[1].z, low[0].w, low[1].w}};
#pragma unroll
      for (int n = 0; n < GROUPS; n++) {
        float products[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
        for (int part = 0; part < 4; part++) mma_m16n8k16(products, x[part], weights[n] + part % 2 * 2);
#pragma unroll
        for (int i = 0; i < 4; i++) {
          Factor f = i % 2 ? factors[n].second : factors[n].first;
          u32 of = token + i / 2 * 8;
          sums[t][n][i] += stage.unit[of] * (f.scale * products[i] + f.minimum * stage.sums[of]);
        }
      }
    }
  }
#pragma unroll
  for (int t = 0; t < TILES; t++)
#pragma unroll
    for (int n = 0; n < GROUPS; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        if (l.act && n) continue;
        u32 row = (own + n) * ROWS + 2 * quarter + i % 2, token = first + 16 * t + lane / 4 + i / 2 * 8;
        if (row >= m.rows || token >= there) continue;
        float sum = sums[t][n][i] + (m.bias == nullptr ? 0.0f : m.bias[row]);
        m.y[(size_t)token * m.stride + row] = l.act ? activated(l.act, sums[t][0][i]) * sums[t][1][i] : sum;
      }
}
