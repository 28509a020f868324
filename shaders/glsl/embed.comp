#version 450
#extension GL_GOOGLE_include_directive : require
// y[t, ·] = scale · table[id]; id = token_src[t], or tokens[−1 − token_src[t]] where that is negative. An invocation writes a
// block of 32 columns; a table in several parts takes a launch for each, which leaves the other parts' rows alone.
//
// variant: embed_affine4 FORMAT=0
// variant: embed_affine8 FORMAT=1
// variant: embed_affine5 FORMAT=5
// variant: embed_affine6 FORMAT=6
// variant: embed_lookup4 FORMAT=7
// variant: embed_f16 FORMAT=2
// variant: embed_bf16 FORMAT=3
// variant: embed_f32 FORMAT=4
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint RI = 8u;
layout(constant_id = 2) const uint COLUMNS = 576u;
layout(constant_id = 3) const uint GROUP = 32u;
layout(constant_id = 4) const uint SCALES = 1u;
layout(local_size_x_id = 0) in;
#define TABLE_ID 5

layout(set = 0, binding = 0) readonly buffer Codes { uvec4 codes[]; };
layout(set = 0, binding = 1) readonly buffer Scales { uint scales[]; };
layout(set = 0, binding = 2) readonly buffer Sources { int token_src[]; };
layout(set = 0, binding = 3) readonly buffer Tokens { uint tokens[]; };
layout(set = 0, binding = 4) writeonly buffer Y { float y[]; };
layout(push_constant) uniform Push {
    uint first; // row of the table that this part begins with
    uint rows;
    uint scales_at; // in words
    float factor;
    float zero;
};

#include "weights.glsl"

const uint BLOCKS = (COLUMNS + 31u) / 32u;

void main() {
    uint block = gl_GlobalInvocationID.x, token = gl_WorkGroupID.y;
    int source = token_src[token];
    uint row = (source < 0 ? tokens[-1 - source] : uint(source)) - first;
    // A row before this part wraps round to a large number.
    if (block >= BLOCKS || row >= rows) return;
    uint lane = row % RI, base = (row / RI * BLOCKS + block) * VECTORS * RI + lane;
    uvec2 high = uvec2(0u);
#if AFFINE
    uint scale_base = scales_at + row / RI * row_words(BLOCKS * 32u) * RI + lane;
    high = HIGH_OF(scale_base, BLOCKS * 32u, block);
#endif
    for (uint v = 0u; v < VECTORS; v++) {
        uvec4 q = codes[base + v * RI];
        for (uint k = 0u; k < PARTS; k++) {
            vec4 w = part(q, high, k);
            uint column = block * 32u + (v * PARTS + k) * 4u;
#if AFFINE
            vec2 scale = SCALE_OF(scale_base, column / GROUP, zero);
            w = scale.x * w + scale.y;
#endif
            for (uint c = 0u; c < 4u; c++)
                if (column + c < COLUMNS) y[token * COLUMNS + column + c] = w[c] * factor;
        }
    }
}
