#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// y[T, rows] = x[T, columns] · weightᵀ, dequantised in registers.
//
// An invocation computes NR row groups for M tokens: a weight is decoded once for M products, and a load of x serves NR
// rows. KS invocations share the columns of a row and add up at the end. Up to three matrices of one layout (queries, keys
// and values) run in one launch; with ACT two are a gate and what it lets through, y = act(gate) · up.
//
// variant: linear_affine4 FORMAT=0 TEXELS=0
// variant: linear_affine4_texels FORMAT=0 TEXELS=1
// variant: linear_affine8 FORMAT=1 TEXELS=0
// variant: linear_affine8_texels FORMAT=1 TEXELS=1
// variant: linear_affine5 FORMAT=5 TEXELS=0
// variant: linear_affine5_texels FORMAT=5 TEXELS=1
// variant: linear_affine6 FORMAT=6 TEXELS=0
// variant: linear_affine6_texels FORMAT=6 TEXELS=1
// variant: linear_lookup4 FORMAT=7 TEXELS=0
// variant: linear_lookup4_texels FORMAT=7 TEXELS=1
// variant: linear_f16 FORMAT=2 TEXELS=0
// variant: linear_f16_texels FORMAT=2 TEXELS=1
// variant: linear_bf16 FORMAT=3 TEXELS=0
// variant: linear_bf16_texels FORMAT=3 TEXELS=1
// variant: linear_f32 FORMAT=4 TEXELS=0
// variant: linear_f32_texels FORMAT=4 TEXELS=1
layout(constant_id = 0) const uint LOCAL = 8u; // RI * KS
layout(constant_id = 1) const uint RI = 8u;
layout(constant_id = 2) const uint KS = 1u;
layout(constant_id = 3) const uint NR = 8u;
layout(constant_id = 4) const uint M = 1u;
layout(constant_id = 5) const uint COLUMNS = 576u;
layout(constant_id = 6) const uint ACT = 0u;
layout(constant_id = 7) const bool BIAS = false;
layout(constant_id = 8) const uint GROUP = 32u;
layout(constant_id = 9) const uint SCALES = 1u;
layout(local_size_x_id = 0) in;
#define TABLE_ID 10

const bool RAGGED = COLUMNS % 32u != 0u;
#include "linear.glsl"

const uint BLOCKS = (COLUMNS + 31u) / 32u;
const uint SIDES = ACT > 0u ? 2u : 1u;
const uint SUMS = SIDES * NR * M;
shared float partial[KS > 1u ? (KS - 1u) * RI * SUMS : 1u];

float sum_of(vec4 v) {
    return (v.x + v.y) + (v.z + v.w);
}

// dot() may round in another order from driver to driver.
float product(vec4 a, vec4 b) {
    return (a.x * b.x + a.y * b.y) + (a.z * b.z + a.w * b.w);
}

void main() {
    uint group = gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x;
    uint which = matrix_of(group), rows = matrix[which].rows;
    if (group >= matrix[which].end) return;
    uint group_in_matrix = (group - workgroups_before(which)) * NR;
    uint last = (rows + RI - 1u) / RI - 1u;
    uint lane = gl_LocalInvocationID.x % RI, share = KS == 1u ? 0u : gl_LocalInvocationID.x / RI;
    uint token = gl_WorkGroupID.z * M;

    uint code_base[SIDES * NR], scale_base[SIDES * NR];
    uint codes_from[SIDES], scales_from[SIDES];
    float zeros[SIDES];
    [[unroll]] for (uint s = 0u; s < SIDES; s++) {
        codes_from[s] = matrix[s == 0u ? which : 1u].codes;
        scales_from[s] = matrix[s == 0u ? which : 1u].scales;
        zeros[s] = matrix[s == 0u ? which : 1u].zero;
    }
    [[unroll]] for (uint i = 0u; i < SIDES * NR; i++) {
        uint row_group = min(group_in_matrix + i % NR, last);
        code_base[i] = codes_from[i / NR] + row_group * BLOCKS * VECTORS * RI + lane;
#if AFFINE
        scale_base[i] = scales_from[i / NR] + row_group * row_words(BLOCKS * 32u) * RI + lane;
#endif
    }
    float sums[SUMS];
    [[unroll]] for (uint i = 0u; i < SUMS; i++) sums[i] = 0.0;
    for (uint block = share; block < BLOCKS; block += KS) {
        vec4 xs[M * 8u];
        [[unroll]] for (uint m = 0u; m < M; m++)
            [[unroll]] for (uint k = 0u; k < 8u; k++) xs[m * 8u + k] = x_at(token + m, block * 8u + k);
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
        [[unroll]] for (uint i = 0u; i < SIDES * NR; i++) {
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
                vec2 scale = SCALE_OF(scale_base[i], (block * 32u + f * GROUP) / GROUP, zeros[i / NR]);
                [[unroll]] for (uint m = 0u; m < M; m++)
                    sums[i * M + m] += scale.x * products[m] + scale.y * totals[m * FRACTIONS + f];
            }
        }
#else
        [[unroll]] for (uint i = 0u; i < SIDES * NR; i++) {
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
    uint tokens = true_rows();
    [[unroll]] for (uint i = 0u; i < NR; i++) {
        uint row = (group_in_matrix + i) * RI + lane;
        if (row >= rows) continue;
        [[unroll]] for (uint m = 0u; m < M; m++) {
            float value = sums[i * M + m];
            if (ACT > 0u) value = activate(ACT, value) * sums[(NR + i) * M + m];
            if (token + m < tokens) write(which, token + m, row, value);
        }
    }
}
