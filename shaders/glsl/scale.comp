#version 450
// y = factor · x, in vectors of four or in words.
//
// variant: scale ELEMENT=vec4
// variant: scale_words ELEMENT=float
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint ELEMENTS = 64u; // of a row
layout(constant_id = 2) const float FACTOR = 1.0;
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer X { ELEMENT x[]; };
layout(set = 0, binding = 1) writeonly buffer Y { ELEMENT y[]; };

void main() {
    uint i = gl_GlobalInvocationID.x, at = gl_WorkGroupID.y * ELEMENTS + i;
    if (i < ELEMENTS) y[at] = FACTOR * x[at];
}
