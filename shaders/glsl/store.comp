#version 450
// The state's first rows = x, in vectors of four or in words.
//
// variant: store ELEMENT=uvec4
// variant: store_words ELEMENT=uint
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint ELEMENTS = 144u; // of a row
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer X { ELEMENT x[]; };
layout(set = 0, binding = 1) writeonly buffer State { ELEMENT state[]; };

void main() {
    uint i = gl_GlobalInvocationID.x, at = gl_WorkGroupID.y * ELEMENTS + i;
    if (i < ELEMENTS) state[at] = x[at];
}
