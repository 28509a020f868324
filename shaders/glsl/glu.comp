#version 450
#extension GL_GOOGLE_include_directive : require
// z = act(gate) · up, in vectors of four or in words.
//
// variant: glu ELEMENT=vec4
// variant: glu_words ELEMENT=float
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint ELEMENTS = 384u; // of a row
layout(constant_id = 2) const uint ACT = 1u;
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer Gate { ELEMENT gate[]; };
layout(set = 0, binding = 1) readonly buffer Up { ELEMENT up[]; };
layout(set = 0, binding = 2) writeonly buffer Z { ELEMENT z[]; };

#include "activations.glsl"

void main() {
    uint i = gl_GlobalInvocationID.x, at = gl_WorkGroupID.y * ELEMENTS + i;
    if (i >= ELEMENTS) return;
    z[at] = activate(ACT, gate[at]) * up[at];
}
