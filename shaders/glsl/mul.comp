#version 450
// z = x · y, in vectors of four or in words; of y there may be one value a row, for all of x's.
//
// variant: mul ELEMENT=vec4 COLUMN=0
// variant: mul_words ELEMENT=float COLUMN=0
// variant: mul_rows ELEMENT=vec4 COLUMN=1
// variant: mul_rows_words ELEMENT=float COLUMN=1
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint ELEMENTS = 144u; // of a row
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer X { ELEMENT x[]; };
#if COLUMN
layout(set = 0, binding = 1) readonly buffer Y { float y[]; };
#else
layout(set = 0, binding = 1) readonly buffer Y { ELEMENT y[]; };
#endif
layout(set = 0, binding = 2) writeonly buffer Z { ELEMENT z[]; };

void main() {
    uint i = gl_GlobalInvocationID.x, at = gl_WorkGroupID.y * ELEMENTS + i;
    if (i >= ELEMENTS) return;
#if COLUMN
    z[at] = x[at] * y[gl_WorkGroupID.y];
#else
    z[at] = x[at] * y[at];
#endif
}
