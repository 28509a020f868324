#version 450
#extension GL_GOOGLE_include_directive : require
// Words with truth value i of a row as bit i % 32 of word i / 32, then zeros.
#include "rows.glsl"

layout(set = 0, binding = 1) readonly buffer X { uint x[]; };
layout(set = 0, binding = 2) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform Push {
    uint first, slots, rows, extent;
    uint x_start, y_start;
};

void main() {
    uint row = this_row(), words = (extent + 31u) / 32u;
    if (row >= true_rows(first, slots, rows)) return;
    for (uint w = gl_WorkGroupID.x * LOCAL + LANE; w < words; w += gl_NumWorkGroups.x * LOCAL) {
        uint word = 0u;
        for (uint i = w * 32u; i < min(w * 32u + 32u, extent); i++)
            word |= (x[x_start + row * extent + i] != 0u ? 1u : 0u) << (i % 32u);
        y[y_start + row * words + w] = word;
    }
}
