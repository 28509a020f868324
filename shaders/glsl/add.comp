#version 450
// z = x + y, in vectors of four or, where a row isn't made of those, in words.
//
// variant: add ELEMENT=vec4
// variant: add_words ELEMENT=float
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint ELEMENTS = 144u; // of a row
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer X { ELEMENT x[]; };
layout(set = 0, binding = 1) readonly buffer Y { ELEMENT y[]; };
layout(set = 0, binding = 2) writeonly buffer Z { ELEMENT z[]; };

void main() {
    uint i = gl_GlobalInvocationID.x, at = gl_WorkGroupID.y * ELEMENTS + i;
    if (i < ELEMENTS) z[at] = x[at] + y[at];
}
