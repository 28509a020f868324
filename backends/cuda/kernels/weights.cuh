// Weight matrices as backends/shared/weights.py packs them, in row groups of 8: [group][item][row][16 bytes]. A warp reads four
// items of eight rows at once, 512 bytes on end. FORMAT says what an item holds, SCALES what
// a group's scale is; all else about a matrix is a parameter.
#pragma once
#include "common.cuh"

#define AFFINE4 0
#define AFFINE5 1
#define AFFINE6 2
#define AFFINE8 3
#define LOOKUP4 4
#define F16 5
#define BF16 6
#define F32 7

#if FORMAT <= LOOKUP4
#define QUANTISED 1
#else
#define QUANTISED 0
#endif
#if FORMAT == AFFINE8
#define ITEM 16  // columns of an item
#elif FORMAT == F16 || FORMAT == BF16
#define ITEM 8
#elif FORMAT == F32
#define ITEM 4
#else
#define ITEM 32
#endif
#define BLOCK 32      // columns that lie together: rows are padded to whole blocks
#define ROWS 8        // of a row group
#define CODE_BIAS (FORMAT == AFFINE8 ? 128 : 0)  // taken from codes, so that they are signed bytes

// Of SCALES, by the scale's type and whether there is a plane of minima.
#define HALF 0
#define HALF_MINIMUM 1
#define FLOAT 2
#define FLOAT_MINIMUM 3
#define BRAIN 4

// How a matrix of so many columns is packed.
struct Packing {
  u32 columns, group, scale_words, row_words;
  u32 table[4];  // of LOOKUP4: what codes stand for, as signed bytes

  __device__ __forceinline__ u32 blocks() const { return (columns + BLOCK - 1) / BLOCK; }
  __device__ __forceinline__ u32 items() const { return blocks() * (BLOCK / ITEM); }
};

// Rows of a matrix that lie together, what is added to their products, and where those go.
struct Matrix {
  const uint4* codes;
  const u32* scales;
  const float* bias;  // or null
  float* y;
  u32 rows, stride;  // of y
  float zero;
};

struct Factor { float scale, minimum; };  // a weight is scale · (code − CODE_BIAS) + minimum

__device__ __forceinline__ u32 word_of(const Packing& p, const u32* words, u32 row, u32 word) {
  return __ldg(words + ((size_t)(row / ROWS) * p.row_words + word) * ROWS + row % ROWS);
}
// A group's scale is one word, or two beside a float's minimum; halves without minima are two groups to a word.
#define SCALE_WORDS (SCALES == FLOAT_MINIMUM ? 2 : 1)
__device__ __forceinline__ u32 scale_word(u32 group) {
  return SCALES == FLOAT_MINIMUM ? 2 * group : SCALES == HALF || SCALES == BRAIN ? group / 2 : group;
}
__device__ __forceinline__ Factor factor_from(float zero, u32 word, u32 second, u32 group) {
#if SCALES == HALF_MINIMUM
  float scale = half_to_float((u16)word), minimum = half_to_float((u16)(word >> 16));
#elif SCALES == FLOAT_MINIMUM
  float scale = __uint_as_float(word), minimum = __uint_as_float(second);
#elif SCALES == FLOAT
  float scale = __uint_as_float(word), minimum = -zero * scale;
#else
  u16 bits = (u16)(group % 2 ? word >> 16 : word);
  float scale = SCALES == HALF ? half_to_float(bits) : bf16_to_float(bits), minimum = -zero * scale;
#endif
  return {scale, minimum + CODE_BIAS * scale};
}
__device__ __forceinline__ Factor factor_of(const Packing& p, const Matrix& m, u32 row, u32 group) {
  u32 word = scale_word(group);
  return factor_from(m.zero, word_of(p, m.scales, row, word), SCALE_WORDS == 2 ? word_of(p, m.scales, row, word + 1) : 0, group);
}

__device__ __forceinline__ uint4 item_of(const Packing& p, const uint4* codes, u32 row, u32 item) {
  return __ldg(codes + ((size_t)(row / ROWS) * p.items() + item) * ROWS + row % ROWS);
}

#if QUANTISED
// Four codes each, as signed bytes, of columns 4i … 4i + 3 of the item: what __dp4a takes.
struct Codes { int fours[ITEM / 4]; };

__device__ __forceinline__ u32 looked_up(const Packing& p, u32 nibbles) {
  u32 place = nibbles & 0x7777;
  u32 low = __byte_perm(p.table[0], p.table[1], place), high = __byte_perm(p.table[2], p.table[3], place);
  // A byte of ones where the nibble's highest bit is set.
  u32 bits = nibbles & 0x8888, chosen = (bits >> 3 & 1) | (bits << 1 & 0x100) | (bits << 5 & 0x10000) | (bits << 9 & 0x1000000);
  chosen *= 255;
  return (low & ~chosen) | (high & chosen);
}

__device__ __forceinline__ Codes codes_of(const Packing& p, const Matrix& m, u32 row, u32 item) {
  uint4 vector = item_of(p, m.codes, row, item);
  const u32 words[4] = {vector.x, vector.y, vector.z, vector.w};
  Codes found;
#if FORMAT == AFFINE8
#pragma unroll
  for (int i = 0; i < 4; i++) found.fours[i] = (int)(words[i] ^ 0x80808080u);
#elif FORMAT == AFFINE4
#pragma unroll
  for (int i = 0; i < 4; i++) {
    u32 even = words[i] & 0x0f0f0f0f, odd = words[i] >> 4 & 0x0f0f0f0f;
    found.fours[2 * i] = (int)__byte_perm(even, odd, 0x5140), found.fours[2 * i + 1] = (int)__byte_perm(even, odd, 0x7362);
  }
#elif FORMAT == LOOKUP4
#pragma unroll
  for (int i = 0; i < 4; i++) {
    found.fours[2 * i] = (int)looked_up(p, words[i] & 0xffff);
    found.fours[2 * i + 1] = (int)looked_up(p, words[i] >> 16);
  }
#elif FORMAT == AFFINE5
  u32 high = word_of(p, m.scales, row, p.scale_words + item);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    found.fours[2 * i] = (int)((words[i] & 0x0f0f0f0f) | (high >> 2 * i & 0x01010101) << 4);
    found.fours[2 * i + 1] = (int)((words[i] >> 4 & 0x0f0f0f0f) | (high >> (2 * i + 1) & 0x01010101) << 4);
  }
#else
#pragma unroll
  for (int i = 0; i < 4; i++) {
    u32 high = word_of(p, m.scales, row, p.scale_words + 2 * item + i / 2) >> 4 * (i % 2);
    found.fours[2 * i] = (int)((words[i] & 0x0f0f0f0f) | (high & 0x03030303) << 4);
    found.fours[2 * i + 1] = (int)((words[i] >> 4 & 0x0f0f0f0f) | (high >> 2 & 0x03030303) << 4);
  }
#endif
  return found;
}

// The weights themselves, of columns ITEM · item on.
__device__ __forceinline__ void weights_of(const Packing& p, const Matrix& m, u32 row, u32 item, float found[ITEM]) {
  Codes codes = codes_of(p, m, row, item);
#pragma unroll
  for (int i = 0; i < ITEM; i++) {
    Factor f = factor_of(p, m, row, (item * ITEM + i / 16 * 16) / p.group);
    found[i] = f.scale * (float)(signed char)(codes.fours[i / 4] >> 8 * (i % 4)) + f.minimum;
  }
}
#else
__device__ __forceinline__ void weights_of(const Packing& p, const Matrix& m, u32 row, u32 item, float found[ITEM]) {
  uint4 vector = item_of(p, m.codes, row, item);
  const u32 words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
  for (int i = 0; i < ITEM; i++) {
#if FORMAT == F16
    found[i] = half_to_float((u16)(words[i / 2] >> 16 * (i % 2)));
#elif FORMAT == BF16
    found[i] = bf16_to_float((u16)(words[i / 2] >> 16 * (i % 2)));
#else
    found[i] = __uint_as_float(words[i]);
#endif
  }
}
#endif
