// Weights on their way to tensor cores: what linear_tile.cu and linear_wgmma.cu have in common. A block has 64 rows of x, as halve.cu
// made them, by 128 rows of weights, or by 64 of each of a gated unit's two: each of its eight warps has two row groups.
//
// Codes are whole numbers, exact as halves. Products of 32 columns are summed by tensor cores, then scaled by their group's factors.
// Which columns a lane multiplies is free, if x and weights agree: lane 4r + c has columns 8c … 8c + 7 of row r. With SIXTEENS, where
// factors change every 16 columns, it has 4c … 4c + 3 of each half of the 32.
#pragma once
#include "weights.cuh"

#define WARPS 8
#define TOKENS 64
#define GROUPS 2  // row groups of a warp: with a gate, one of each matrix
#ifndef SIXTEENS
#define SIXTEENS 0
#endif
#define STRETCHES (1 + SIXTEENS)         // of a block's columns, each with its factors
#define PARTS (FORMAT == BF16 ? 3 : 2)  // of a value of x

struct Linear {
  const u16* parts;
  const float2* units;
  const u32* tokens;  // the true number, or null where there are `most`
  u32 most, rows;     // of the room of x
  u32 act;            // of a gated unit, or 0
  u32 ends[3];        // of the matrices' blocks
};

#define VECTORS (BLOCK / ITEM)  // 16-byte vectors of a row's 32 columns
#define HIGH_WORDS (FORMAT == AFFINE5 ? 1 : FORMAT == AFFINE6 ? 2 : 0)
#define BLOCK_WORDS (SIXTEENS && SCALES != HALF ? 2 * SCALE_WORDS : SCALE_WORDS)  // of scales of 32 columns: two halves share one
#define WORDS (QUANTISED ? BLOCK_WORDS + HIGH_WORDS : 0)
#define CHUNKS (ROWS * VECTORS + 2 * WORDS)  // 16-byte pieces of 32 columns of a row group

// 32 columns of a row group: codes as they lie in memory, but for rows that swap places so that lanes read other banks; then words of
// scales, and of codes' high bits.
struct Piece {
  uint4 chunks[CHUNKS];
  __device__ __forceinline__ static u32 place(u32 vector, u32 row) { return vector * ROWS + (row ^ vector * (ROWS / VECTORS)); }
  __device__ __forceinline__ u32 word(u32 number, u32 row) const { return ((const u32*)(chunks + ROWS * VECTORS))[number * ROWS + row]; }
};

// Where a warp's row groups lie. Past the end the last one stands in: its products go nowhere.
struct Own {
  const uint4* codes[GROUPS];
  const u32* scales[GROUPS];
  float zeros[GROUPS];
  u32 first;
  __device__ __forceinline__ Own(const Packing& p, const Matrix& m, const Matrix& gated, u32 act, u32 tile) {
    first = (tile * WARPS + threadIdx.x / 32) * (act ? 1 : GROUPS);
#pragma unroll
    for (u32 n = 0; n < GROUPS; n++) {
      const Matrix& of = act && n ? gated : m;
      size_t group = min(act ? first : first + n, (m.rows + ROWS - 1) / ROWS - 1);
      codes[n] = of.codes + group * p.items() * ROWS, scales[n] = of.scales + group * p.row_words * ROWS, zeros[n] = of.zero;
    }
  }
};

// A warp's own pieces of a block of columns: nobody else reads them.
__device__ __forceinline__ void bring_pieces(Piece pieces[GROUPS], const Packing& p, const Own& own, u32 block) {
#pragma unroll
  for (u32 i = threadIdx.x & 31; i < GROUPS * CHUNKS; i += 32) {
    u32 n = i / CHUNKS, chunk = i % CHUNKS, to = chunk;
    const uint4* from;
    if (chunk < ROWS * VECTORS) {
      from = (n ? own.codes[1] : own.codes[0]) + (size_t)block * VECTORS * ROWS + chunk;
      to = Piece::place(chunk / ROWS, chunk % ROWS);
    } else {
      u32 number = chunk - ROWS * VECTORS, word = scale_word(block * BLOCK / p.group);
      if (number >= 2 * BLOCK_WORDS) word = p.scale_words + HIGH_WORDS * block, number -= 2 * BLOCK_WORDS;
      from = (const uint4*)((n ? own.scales[1] : own.scales[0]) + (size_t)word * ROWS) + number;
    }
    copy_async(pieces[n].chunks + to, from);
  }
}

#if QUANTISED
#define OFFSET (FORMAT == AFFINE8 || FORMAT == LOOKUP4 ? 128 : 0)  // added to codes, so that they are unsigned bytes

// The nth four of the columns' codes, plus OFFSET, a byte each.
__device__ __forceinline__ u32 four_codes(const Packing& p, const Piece& piece, u32 row, u32 n) {
#if FORMAT == AFFINE8
  return ((const u32*)(piece.chunks + Piece::place(n / 4, row)))[n % 4];
#else
  u32 word = ((const u32*)(piece.chunks + row))[n / 2];
#if FORMAT == LOOKUP4
  return looked_up(p, word >> 16 * (n % 2) & 0xffff) ^ 0x80808080;
#elif FORMAT == AFFINE4
  return __byte_perm(word & 0x0f0f0f0f, word >> 4 & 0x0f0f0f0f, n % 2 ? 0x7362 : 0x5140);
#else
  u32 low = word >> 4 * (n % 2) & 0x0f0f0f0f;
#if FORMAT == AFFINE5
  return low | (piece.word(BLOCK_WORDS, row) >> n & 0x01010101) << 4;
#else
  return low | (piece.word(BLOCK_WORDS + n / 4, row) >> 2 * (n % 4) & 0x03030303) << 4;
#endif
#endif
#endif
}

// As halves: a byte behind 0x64 is 1024 more than itself.
__device__ __forceinline__ void fragments_of(const Packing& p, const Piece& piece, u32 row, u32 c, u32 found[4]) {
  uint2 bytes = SIXTEENS ? make_uint2(four_codes(p, piece, row, c), four_codes(p, piece, row, 4 + c))
                         : make_uint2(four_codes(p, piece, row, 2 * c), four_codes(p, piece, row, 2 * c + 1));
  const u32 zero = OFFSET ? 0x64806480 : 0x64006400;
  found[0] = subtract_halves(__byte_perm(bytes.x, 0x64646464, 0x4140), zero);
  found[1] = subtract_halves(__byte_perm(bytes.x, 0x64646464, 0x4342), zero);
  found[2] = subtract_halves(__byte_perm(bytes.y, 0x64646464, 0x4140), zero);
  found[3] = subtract_halves(__byte_perm(bytes.y, 0x64646464, 0x4342), zero);
}
__device__ __forceinline__ Factor factor_in(const Packing& p, float zero, const Piece& piece, u32 row, u32 block, u32 stretch = 0) {
  u32 word = SCALES == HALF ? 0 : stretch * SCALE_WORDS, group = SIXTEENS ? 2 * block + stretch : block * BLOCK / p.group;
  return factor_from(zero, piece.word(word, row), SCALE_WORDS == 2 ? piece.word(word + 1, row) : 0, group);
}
#else
__device__ __forceinline__ void fragments_of(const Packing& p, const Piece& piece, u32 row, u32 c, u32 found[4]) {
  uint4 words = *(const uint4*)(piece.chunks + Piece::place(c, row));
  found[0] = words.x, found[1] = words.y, found[2] = words.z, found[3] = words.w;
}
__device__ __forceinline__ Factor factor_in(const Packing& p, float zero, const Piece& piece, u32 row, u32 block, u32 stretch = 0) {
  return {1.0f, 0.0f};
}
#endif

__device__ __forceinline__ float bias_of(const Matrix& m, u32 row) { return m.bias == nullptr || row >= m.rows ? 0.0f : m.bias[row]; }
// A row's sum with its bias, or what a gated unit makes of it and of the other matrix' sum.
__device__ __forceinline__ float finished(u32 act, float sum, float gated) { return act ? activated(act, sum) * gated : sum; }
