#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// y of each row and each of its experts: x · the expert's matrixᵀ, dequantised in registers as in linear.comp.
//
// The experts' matrices lie one below another, and a part of them may be bound: a workgroup takes NR row groups that have rows
// of its expert, of which the first and the last may have others' too. Alone (M = 1) a workgroup takes one row and one of its
// experts; else up to M rows of one expert, in tiles that `order` and `starts` tell: a weight is then decoded once for all.
//
// variant: expert_linear_affine4 FORMAT=0 TEXELS=0
// variant: expert_linear_affine4_texels FORMAT=0 TEXELS=1
// variant: expert_linear_affine8 FORMAT=1 TEXELS=0
// variant: expert_linear_affine8_texels FORMAT=1 TEXELS=1
// variant: expert_linear_affine5 FORMAT=5 TEXELS=0
// variant: expert_linear_affine5_texels FORMAT=5 TEXELS=1
// variant: expert_linear_affine6 FORMAT=6 TEXELS=0
// variant: expert_linear_affine6_texels FORMAT=6 TEXELS=1
// variant: expert_linear_lookup4 FORMAT=7 TEXELS=0
// variant: expert_linear_lookup4_texels FORMAT=7 TEXELS=1
// variant: expert_linear_f16 FORMAT=2 TEXELS=0
// variant: expert_linear_f16_texels FORMAT=2 TEXELS=1
// variant: expert_linear_bf16 FORMAT=3 TEXELS=0
// variant: expert_linear_bf16_texels FORMAT=3 TEXELS=1
// variant: expert_linear_f32 FORMAT=4 TEXELS=0
// variant: expert_linear_f32_texels FORMAT=4 TEXELS=1
layout(constant_id = 0) const uint LOCAL = 8u; // RI * KS
layout(constant_id = 1) const uint RI = 8u;
layout(constant_id = 2) const uint KS = 1u;
layout(constant_id = 3) const uint NR = 8u;
layout(constant_id = 4) const uint M = 1u;
layout(constant_id = 5) const uint COLUMNS = 576u;
layout(constant_id = 6) const uint ROWS = 64u; // of an expert
layout(constant_id = 7) const uint EXPERTS = 8u;
layout(constant_id = 8) const uint CHOSEN = 2u; // experts of a row
layout(constant_id = 9) const uint SHARING = 1u; // experts of a row that share its x: CHOSEN, or 1 where each has its own
layout(constant_id = 10) const bool BIAS = false;
layout(constant_id = 11) const uint GROUP = 32u;
layout(constant_id = 12) const uint SCALES = 1u;
layout(local_size_x_id = 0) in;
#define TABLE_ID 13

const bool RAGGED = COLUMNS % 32u != 0u;
#include "operands.glsl"
layout(set = 0, binding = 3) readonly buffer Bias { float bias[]; };
layout(set = 0, binding = 4) writeonly buffer Y { float y[]; };
layout(set = 0, binding = 5) readonly buffer Experts { uint experts[]; };
layout(set = 0, binding = 6) readonly buffer Order { uint order[]; };
layout(set = 0, binding = 7) readonly buffer Starts { uint starts[]; };
layout(push_constant) uniform Push {
    uint scales_from; // in words
    uint part_first;  // the first of all experts' rows that is bound
    uint part_rows;
    float zero;
};

const uint BLOCKS = (COLUMNS + 31u) / 32u;
const uint SUMS = NR * M;
shared float partial[KS > 1u ? (KS - 1u) * RI * SUMS : 1u];

float sum_of(vec4 v) {
    return (v.x + v.y) + (v.z + v.w);
}

float product(vec4 a, vec4 b) {
    return (a.x * b.x + a.y * b.y) + (a.z * b.z + a.w * b.w);
}

uint expert, places[M], count; // places: row · CHOSEN + which of its experts

// Which rows the workgroup takes, and whether there are any.
bool find_rows() {
    if (M == 1u) {
        places[0] = gl_WorkGroupID.y * CHOSEN + gl_WorkGroupID.z;
        expert = experts[places[0]];
        count = 1u;
        return true;
    }
    uint tile = gl_WorkGroupID.y;
    for (expert = 0u; expert < EXPERTS; expert++) {
        uint tiles = (starts[expert + 1u] - starts[expert] + M - 1u) / M;
        if (tile < tiles) break;
        tile -= tiles;
    }
    if (expert == EXPERTS) return false;
    uint first = starts[expert] + tile * M;
    count = min(starts[expert + 1u] - first, M);
    [[unroll]] for (uint m = 0u; m < M; m++) places[m] = order[first + min(m, count - 1u)];
    return true;
}

void main() {
    if (!find_rows()) return;
    uint begin = max(expert * ROWS, part_first), end = min((expert + 1u) * ROWS, part_first + part_rows);
    if (begin >= end) return;
    uint first_group = (begin - part_first) / RI + gl_WorkGroupID.x * NR, last = (end - 1u - part_first) / RI;
    if (first_group > last) return;
    uint lane = gl_LocalInvocationID.x % RI, share = KS == 1u ? 0u : gl_LocalInvocationID.x / RI;

    uint code_base[NR], scale_base[NR];
    [[unroll]] for (uint i = 0u; i < NR; i++) {
        uint row_group = min(first_group + i, last);
        code_base[i] = row_group * BLOCKS * VECTORS * RI + lane;
#if AFFINE
        scale_base[i] = scales_from + row_group * row_words(BLOCKS * 32u) * RI + lane;
#endif
    }
    float sums[SUMS];
    [[unroll]] for (uint i = 0u; i < SUMS; i++) sums[i] = 0.0;
    for (uint block = share; block < BLOCKS; block += KS) {
        vec4 xs[M * 8u];
        [[unroll]] for (uint m = 0u; m < M; m++)
            [[unroll]] for (uint k = 0u; k < 8u; k++) xs[m * 8u + k] = x_at(places[m] / SHARING, block * 8u + k);
#if AFFINE
        // A group of 16 columns is half a block, one of 64 and more holds several.
        const uint FRACTIONS = GROUP < 32u ? 32u / GROUP : 1u;
        float totals[M * FRACTIONS];
        [[unroll]] for (uint m = 0u; m < M; m++)
            [[unroll]] for (uint f = 0u; f < FRACTIONS; f++) {
                vec4 total = vec4(0.0);
                [[unroll]] for (uint k = 0u; k < 8u / FRACTIONS; k++) total += xs[m * 8u + f * (8u / FRACTIONS) + k];
                totals[m * FRACTIONS + f] = sum_of(total);
            }
        [[unroll]] for (uint i = 0u; i < M * 8u; i++) xs[i] *= place_factors(i);
        [[unroll]] for (uint i = 0u; i < NR; i++) {
            uvec4 q[VECTORS];
            [[unroll]] for (uint v = 0u; v < VECTORS; v++) q[v] = codes_at(code_base[i] + (block * VECTORS + v) * RI);
            uvec2 high = HIGH_OF(scale_base[i], BLOCKS * 32u, block);
            [[unroll]] for (uint f = 0u; f < FRACTIONS; f++) {
                float products[M];
                [[unroll]] for (uint m = 0u; m < M; m++) products[m] = 0.0;
                [[unroll]] for (uint i4 = 0u; i4 < 8u / FRACTIONS; i4++) {
                    uint k = f * (8u / FRACTIONS) + i4;
                    vec4 w = part_in_place(q[k / PARTS], high, k % PARTS);
                    [[unroll]] for (uint m = 0u; m < M; m++) products[m] += product(w, xs[m * 8u + k]);
                }
                vec2 scale = SCALE_OF(scale_base[i], (block * 32u + f * GROUP) / GROUP, zero);
                [[unroll]] for (uint m = 0u; m < M; m++)
                    sums[i * M + m] += scale.x * products[m] + scale.y * totals[m * FRACTIONS + f];
            }
        }
#else
        [[unroll]] for (uint i = 0u; i < NR; i++) {
            float products[M];
            [[unroll]] for (uint m = 0u; m < M; m++) products[m] = 0.0;
            [[unroll]] for (uint v = 0u; v < VECTORS; v++) {
                uvec4 q = codes_at(code_base[i] + (block * VECTORS + v) * RI);
                [[unroll]] for (uint k = 0u; k < PARTS; k++) {
                    vec4 w = part(q, uvec2(0u), k);
                    [[unroll]] for (uint m = 0u; m < M; m++) products[m] += product(w, xs[m * 8u + v * PARTS + k]);
                }
            }
            [[unroll]] for (uint m = 0u; m < M; m++) sums[i * M + m] += products[m];
        }
#endif
    }
    if (KS > 1u) {
        if (share > 0u)
            [[unroll]] for (uint i = 0u; i < SUMS; i++) partial[((share - 1u) * SUMS + i) * RI + lane] = sums[i];
        barrier();
        if (share > 0u) return;
        [[unroll]] for (uint s = 0u; s < KS - 1u; s++)
            [[unroll]] for (uint i = 0u; i < SUMS; i++) sums[i] += partial[(s * SUMS + i) * RI + lane];
    }
    [[unroll]] for (uint i = 0u; i < NR; i++) {
        uint row = part_first + (first_group + i) * RI + lane;
        if (row < begin || row >= end) continue;
        float shift = BIAS ? bias[row] : 0.0;
        [[unroll]] for (uint m = 0u; m < M; m++)
            if (m < count) y[places[m] * ROWS + row - expert * ROWS] = sums[i * M + m] + shift;
    }
}
