#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// y[T, rows] = x[T, columns] · weightᵀ for many tokens: a workgroup computes a tile of ROWS rows for TOKENS tokens, a block of 32
// columns at a time, from weights it decodes once into shared memory. An invocation keeps four rows by four tokens.
//
// variant: linear_tile_affine4 FORMAT=0 TEXELS=0
// variant: linear_tile_affine8 FORMAT=1 TEXELS=0
// variant: linear_tile_affine5 FORMAT=5 TEXELS=0
// variant: linear_tile_affine6 FORMAT=6 TEXELS=0
// variant: linear_tile_lookup4 FORMAT=7 TEXELS=0
// variant: linear_tile_f16 FORMAT=2 TEXELS=0
// variant: linear_tile_bf16 FORMAT=3 TEXELS=0
// variant: linear_tile_f32 FORMAT=4 TEXELS=0
layout(constant_id = 0) const uint LOCAL = 128u; // ROWS / 4 * TOKENS / 4
layout(constant_id = 1) const uint RI = 32u;
layout(constant_id = 2) const uint ROWS = 64u; // a multiple of RI
layout(constant_id = 3) const uint TOKENS = 32u;
layout(constant_id = 4) const uint COLUMNS = 576u;
layout(constant_id = 5) const uint ACT = 0u;
layout(constant_id = 6) const bool BIAS = false;
layout(constant_id = 7) const uint GROUP = 32u;
layout(constant_id = 8) const uint SCALES = 1u;
layout(local_size_x_id = 0) in;
#define TABLE_ID 9

const bool RAGGED = COLUMNS % 32u != 0u;
#include "linear.glsl"

const uint SIDES = ACT > 0u ? 2u : 1u;
// Odd strides: the invocations of a subgroup write to different banks.
const uint ROW_STRIDE = ROWS + 1u;
const uint TOKEN_STRIDE = TOKENS + 1u;
shared float weights[32u * ROW_STRIDE];
shared float inputs[32u * TOKEN_STRIDE];

void load_weights(uint which, uint first_row, uint block, uint blocks) {
    uint last_group = (matrix[which].rows + RI - 1u) / RI - 1u;
    for (uint i = gl_LocalInvocationID.x; i < ROWS * VECTORS; i += LOCAL) {
        uint row = i % ROWS, vector = i / ROWS, lane = row % RI;
        uint group = min((first_row + row) / RI, last_group);
        uvec4 q = codes_at(matrix[which].codes + ((group * blocks + block) * VECTORS + vector) * RI + lane);
        uvec2 high = uvec2(0u);
#if AFFINE
        uint base = matrix[which].scales + group * row_words(blocks * 32u) * RI + lane;
        high = HIGH_OF(base, blocks * 32u, block);
#endif
        [[unroll]] for (uint k = 0u; k < PARTS; k++) {
            vec4 w = part(q, high, k);
            uint column = (vector * PARTS + k) * 4u;
#if AFFINE
            vec2 scale = SCALE_OF(base, (block * 32u + column) / GROUP, matrix[which].zero);
            w = scale.x * w + scale.y;
#endif
            [[unroll]] for (uint c = 0u; c < 4u; c++) weights[(column + c) * ROW_STRIDE + row] = w[c];
        }
    }
}

void load_inputs(uint first_token, uint block) {
    for (uint i = gl_LocalInvocationID.x; i < TOKENS * 8u; i += LOCAL) {
        uint token = i / 8u, four = i % 8u;
        // A row past those that are bound repeats the last one, and isn't written.
        vec4 value = x_at(min(first_token + token, room - 1u), block * 8u + four);
        [[unroll]] for (uint c = 0u; c < 4u; c++) inputs[(four * 4u + c) * TOKEN_STRIDE + token] = value[c];
    }
}

void main() {
    uint group = gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x, which = matrix_of(group);
    if (group >= matrix[which].end) return;
    uint first_row = (group - workgroups_before(which)) * ROWS, first_token = gl_WorkGroupID.z * TOKENS;
    uint blocks = (COLUMNS + 31u) / 32u;
    // Neighbours take neighbouring rows, and the four of an invocation are ROWS / 4 apart: no bank is read twice.
    uint my_row = gl_LocalInvocationID.x % (ROWS / 4u), my_token = gl_LocalInvocationID.x / (ROWS / 4u);

    vec4 sums[SIDES * 4u]; // by token, four rows each
    [[unroll]] for (uint i = 0u; i < SIDES * 4u; i++) sums[i] = vec4(0.0);
    for (uint block = 0u; block < blocks; block++) {
        [[unroll]] for (uint side = 0u; side < SIDES; side++) {
            barrier();
            if (side == 0u) load_inputs(first_token, block);
            load_weights(side == 0u ? which : 1u, first_row, block, blocks);
            barrier();
            for (uint k = 0u; k < 32u; k++) {
                vec4 w;
                [[unroll]] for (uint r = 0u; r < 4u; r++) w[r] = weights[k * ROW_STRIDE + r * (ROWS / 4u) + my_row];
                [[unroll]] for (uint t = 0u; t < 4u; t++)
                    sums[side * 4u + t] += w * inputs[k * TOKEN_STRIDE + t * (TOKENS / 4u) + my_token];
            }
        }
    }
    uint tokens = true_rows();
    [[unroll]] for (uint t = 0u; t < 4u; t++) {
        uint token = first_token + t * (TOKENS / 4u) + my_token;
        [[unroll]] for (uint r = 0u; r < 4u; r++) {
            uint row = first_row + r * (ROWS / 4u) + my_row;
            float value = sums[t][r];
            if (ACT > 0u) value = activate(ACT, value) * sums[(SIDES - 1u) * 4u + t][r];
            if (row < matrix[which].rows && token < tokens) write(which, token, row, value);
        }
    }
}
