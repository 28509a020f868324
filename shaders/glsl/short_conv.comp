#version 450
#extension GL_GOOGLE_include_directive : require
// y[t,c] = act(Σ_j weight[c,W−1−j] · x(n−j, c) + bias[c]), x(m) being a row of the step or, before those, of the tail. An
// invocation takes a column of a row.
//
// variant: short_conv_f16 FORMAT=2
// variant: short_conv_bf16 FORMAT=3
// variant: short_conv_f32 FORMAT=4
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint COLUMNS = 64u;
layout(constant_id = 2) const uint TAPS = 4u;
layout(constant_id = 3) const uint LENGTH = 8u;
layout(constant_id = 4) const uint RI = 8u;
layout(constant_id = 5) const uint ACT = 0u; // 0: none
layout(constant_id = 6) const bool BIAS = false;
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer X { float x[]; };
layout(set = 0, binding = 1) readonly buffer Weight { uvec4 codes[]; };
layout(set = 0, binding = 2) readonly buffer Tail { float tail[]; };
layout(set = 0, binding = 3) readonly buffer Bias { float bias[]; }; // anything where there is none
layout(set = 0, binding = 4) readonly buffer Step { uint step[]; };
layout(set = 0, binding = 5) writeonly buffer Y { float y[]; };

#include "activations.glsl"
#include "recurrent.glsl"
#include "weights.glsl"

const uint BLOCKS = (TAPS + 31u) / 32u;

vec4 taps_of(uint column, uint fourth) {
    uint vector = fourth % 8u / PARTS;
    return part(codes[((column / RI * BLOCKS + fourth / 8u) * VECTORS + vector) * RI + column % RI], uvec2(0u), fourth % PARTS);
}

void main() {
    uint column = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
    if (column >= COLUMNS) return;
    Sequence s = sequence_at(sequence_of(row));
    uint place = row - s.first;
    float sum = BIAS ? bias[column] : 0.0;
    for (uint fourth = 0u; fourth < (TAPS + 3u) / 4u; fourth++) {
        vec4 weights = taps_of(column, fourth);
        for (uint i = 0u; i < 4u && fourth * 4u + i < TAPS; i++) {
            uint back = TAPS - 1u - fourth * 4u - i; // places before this row
            if (back <= place) sum += weights[i] * x[(row - back) * COLUMNS + column];
            else if (back - place <= s.start) sum += weights[i] * tail[tail_row(s, back - place) * COLUMNS + column];
        }
    }
    y[row * COLUMNS + column] = ACT == 0u ? sum : activate(ACT, sum);
}
