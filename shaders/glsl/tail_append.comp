#version 450
#extension GL_GOOGLE_include_directive : require
// The last rows of each sequence over their places of its tail, in vectors of four or in words. A row of workgroups takes the
// row that has so many after it.
//
// variant: tail_append ELEMENT=vec4
// variant: tail_append_words ELEMENT=float
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint ELEMENTS = 16u; // of a row
layout(constant_id = 2) const uint LENGTH = 8u;
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer X { ELEMENT x[]; };
layout(set = 0, binding = 1) readonly buffer Step { uint step[]; };
layout(set = 0, binding = 2) writeonly buffer Tail { ELEMENT tail[]; };

#include "recurrent.glsl"

void main() {
    uint i = gl_GlobalInvocationID.x, after = gl_WorkGroupID.y;
    Sequence s = sequence_at(gl_WorkGroupID.z);
    if (i >= ELEMENTS || after >= s.rows) return;
    uint row = s.rows - 1u - after;
    tail[(s.home * LENGTH + (s.start + row) % LENGTH) * ELEMENTS + i] = x[(s.first + row) * ELEMENTS + i];
}
