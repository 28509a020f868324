// How a weight matrix [rows, columns] lies in a buffer, shared by the kernels that read it.
//
// Rows are taken RI at a time (a row group) and interleaved, columns 32 at a time (a block):
//
//     codes   uvec4 [row group][block][VECTORS][RI]     scales   uint [row group][word][RI]
//
// so that the invocations of a row group, one a row, read neighbouring addresses. FORMAT says what a uvec4 holds, SCALES
// what the scales' words are. Columns past the matrix are zeros; so are rows of the last row group.
//
// Of codes of five and six bits a uvec4 has the lower four, and HIGH words of each block, which follow the row's scales, the
// rest. Both lie so that four columns' codes come to be the bytes of a word in five operations: the two halves of byte b of
// word w are columns 8w + b and 8w + 4 + b, and byte b of the high words has columns b, 4 + b, 8 + b … from its lowest bit on.

#define AFFINE4 0
#define AFFINE8 1
#define HALF 2
#define BFLOAT 3
#define FLOAT 4
#define AFFINE5 5
#define AFFINE6 6
#define LOOKUP4 7

#if FORMAT == AFFINE5
#define HIGH 1
#elif FORMAT == AFFINE6
#define HIGH 2
#else
#define HIGH 0
#endif
#if FORMAT == AFFINE4 || FORMAT == LOOKUP4 || HIGH > 0
#define VECTORS 1u
#elif FORMAT == AFFINE8
#define VECTORS 2u
#elif FORMAT == FLOAT
#define VECTORS 8u
#else
#define VECTORS 4u
#endif
// Codes with a scale for each group.
#define AFFINE (FORMAT <= AFFINE8 || FORMAT >= AFFINE5)

#define PARTS (8u / VECTORS)
// vec4s of columns in one uvec4

#if FORMAT == LOOKUP4
// What each code stands for: sixteen whole numbers, a byte each. TABLE_ID is the first constant after a kernel's own.
layout(constant_id = TABLE_ID) const uint TABLE_0 = 0x03020100u;
layout(constant_id = TABLE_ID + 1) const uint TABLE_1 = 0x07060504u;
layout(constant_id = TABLE_ID + 2) const uint TABLE_2 = 0x0B0A0908u;
layout(constant_id = TABLE_ID + 3) const uint TABLE_3 = 0x0F0E0D0Cu;

vec4 looked_up(uvec4 codes_) {
    bvec4 odd = notEqual(codes_ & 4u, uvec4(0u)), upper = notEqual(codes_ & 8u, uvec4(0u));
    uvec4 low = mix(uvec4(TABLE_0), uvec4(TABLE_1), odd), high = mix(uvec4(TABLE_2), uvec4(TABLE_3), odd);
    return vec4(ivec4(mix(low, high, upper) << (24u - 8u * (codes_ & 3u))) >> 24);
}
#elif FORMAT == AFFINE5
// The codes of the k-th four columns, a byte each.
uint code_bytes(uvec4 q, uvec2 high, uint k) {
    uint bits = k < 4u ? high.x << (4u - k) : high.x >> (k - 4u);
    return (q[k >> 1] >> 4u * (k & 1u) & 0x0F0F0F0Fu) | (bits & 0x10101010u);
}
#elif FORMAT == AFFINE6
uint code_bytes(uvec4 q, uvec2 high, uint k) {
    uint word = high[k >> 2], place = k & 3u, bits = place < 2u ? word << (4u - 2u * place) : word >> (2u * place - 4u);
    return (q[k >> 1] >> 4u * (k & 1u) & 0x0F0F0F0Fu) | (bits & 0x30303030u);
}
#endif

// The k-th four columns of a uvec4, codes as whole numbers.
vec4 part(uvec4 q, uvec2 high, uint k) {
#if HIGH > 0
    uint v = code_bytes(q, high, k);
    return vec4(uvec4(v, v >> 8, v >> 16, v >> 24) & 255u);
#elif FORMAT == AFFINE4 || FORMAT == LOOKUP4
    uint v = q[k >> 1] >> (16u * (k & 1u));
    uvec4 four = uvec4(v, v >> 4, v >> 8, v >> 12) & 15u;
#if FORMAT == LOOKUP4
    return looked_up(four);
#else
    return vec4(four);
#endif
#elif FORMAT == AFFINE8
    uint v = q[k];
    return vec4(uvec4(v, v >> 8, v >> 16, v >> 24) & 255u);
#elif FORMAT == HALF
    return vec4(unpackHalf2x16(q[2u * k]), unpackHalf2x16(q[2u * k + 1u]));
#elif FORMAT == BFLOAT
    return uintBitsToFloat(uvec4(q[2u * k] << 16, q[2u * k] & 0xFFFF0000u, q[2u * k + 1u] << 16, q[2u * k + 1u] & 0xFFFF0000u));
#else
    return uintBitsToFloat(q);
#endif
}

// The same where codes stay at the place in their word that they have, with the factors that bring them down: what is
// multiplied with them takes these once for many weights. Each is exact, and none has the sign bit.
#if FORMAT == AFFINE4
vec4 part_in_place(uvec4 q, uvec2 high, uint k) {
    uint v = q[k >> 1];
    if ((k & 1u) == 0u) return vec4(ivec4(v & 0xFu, v & 0xF0u, v & 0xF00u, v & 0xF000u));
    return vec4(ivec4(v & 0xF0000u, v & 0xF00000u, v & 0xF000000u, v >> 28));
}
vec4 place_factors(uint k) {
    return (k & 1u) == 0u ? vec4(1.0, exp2(-4.0), exp2(-8.0), exp2(-12.0)) : vec4(exp2(-16.0), exp2(-20.0), exp2(-24.0), 1.0);
}
#elif FORMAT == LOOKUP4
// What they stand for has no place.
vec4 part_in_place(uvec4 q, uvec2 high, uint k) {
    return part(q, high, k);
}
vec4 place_factors(uint k) {
    return vec4(1.0);
}
#elif AFFINE
vec4 part_in_place(uvec4 q, uvec2 high, uint k) {
#if HIGH > 0
    uint v = code_bytes(q, high, k);
#else
    uint v = q[k];
#endif
    return vec4(ivec4(v & 0xFFu, v & 0xFF00u, v & 0xFF0000u, v >> 24));
}
vec4 place_factors(uint k) {
    return vec4(1.0, exp2(-8.0), exp2(-16.0), 1.0);
}
#endif

#if AFFINE
#define HALF_SCALES 0u
#define HALF_PAIRS 1u
#define FLOAT_SCALES 2u
#define FLOAT_PAIRS 3u
#define BFLOAT_SCALES 4u

// Words of scales that each row of `columns` columns, whole blocks, has.
uint scale_words(uint columns) {
    uint groups = (columns + GROUP - 1u) / GROUP;
    return SCALES == HALF_SCALES || SCALES == BFLOAT_SCALES ? (groups + 1u) / 2u : (SCALES == FLOAT_PAIRS ? 2u * groups : groups);
}

// The same with the high bits of its codes.
uint row_words(uint columns) {
    return scale_words(columns) + uint(HIGH) * (columns / 32u);
}

#ifndef SCALE_WORD
#define SCALE_WORD(i) scales[i]
#endif

// Scale and minimum of a group, whose words begin at `base` plus the row's lane: the weight is scale * code + minimum.
#define SCALE_OF(base, group, zero) \
    (SCALES == HALF_SCALES ? without_minimum(half_of(SCALE_WORD((base) + ((group) >> 1) * RI), (group) & 1u), zero) \
     : SCALES == HALF_PAIRS ? unpackHalf2x16(SCALE_WORD((base) + (group) * RI)) \
     : SCALES == FLOAT_SCALES ? without_minimum(uintBitsToFloat(SCALE_WORD((base) + (group) * RI)), zero) \
     : SCALES == BFLOAT_SCALES ? without_minimum(bfloat_of(SCALE_WORD((base) + ((group) >> 1) * RI), (group) & 1u), zero) \
     : uintBitsToFloat(uvec2(SCALE_WORD((base) + 2u * (group) * RI), SCALE_WORD((base) + (2u * (group) + 1u) * RI))))

// The high bits of a block of codes; `base` is as above.
#if FORMAT == AFFINE5
#define HIGH_OF(base, columns, block) uvec2(SCALE_WORD((base) + (scale_words(columns) + (block)) * RI), 0u)
#elif FORMAT == AFFINE6
#define HIGH_OF(base, columns, block) \
    uvec2(SCALE_WORD((base) + (scale_words(columns) + 2u * (block)) * RI), \
          SCALE_WORD((base) + (scale_words(columns) + 2u * (block) + 1u) * RI))
#else
#define HIGH_OF(base, columns, block) uvec2(0u)
#endif

float half_of(uint word, uint which) {
    return unpackHalf2x16(word >> (16u * which)).x;
}

float bfloat_of(uint word, uint which) {
    return uintBitsToFloat(which == 0u ? word << 16 : word & 0xFFFF0000u);
}

vec2 without_minimum(float scale, float zero) {
    return vec2(scale, -zero * scale);
}
#endif
