#version 450
// y[r, ·] = x[rows[r], ·], in vectors of four or in words.
//
// variant: gather_rows ELEMENT=uvec4
// variant: gather_rows_words ELEMENT=uint
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint ELEMENTS = 144u; // of a row
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer X { ELEMENT x[]; };
layout(set = 0, binding = 1) readonly buffer Rows { uint rows[]; };
layout(set = 0, binding = 2) writeonly buffer Y { ELEMENT y[]; };

void main() {
    uint i = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
    if (i < ELEMENTS) y[row * ELEMENTS + i] = x[rows[row] * ELEMENTS + i];
}
