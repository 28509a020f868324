#version 450
// z = g · sigmoid(SLOPE · g) · (u + 1), g being gate but LIMIT at most and u up within ±LIMIT, in vectors of four or in words.
//
// variant: clamped_glu ELEMENT=vec4
// variant: clamped_glu_words ELEMENT=float
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint ELEMENTS = 384u; // of a row
layout(constant_id = 2) const float SLOPE = 1.702;
layout(constant_id = 3) const float LIMIT = 7.0;
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer Gate { ELEMENT gate[]; };
layout(set = 0, binding = 1) readonly buffer Up { ELEMENT up[]; };
layout(set = 0, binding = 2) writeonly buffer Z { ELEMENT z[]; };

void main() {
    uint i = gl_GlobalInvocationID.x, at = gl_WorkGroupID.y * ELEMENTS + i;
    if (i >= ELEMENTS) return;
    ELEMENT g = min(gate[at], ELEMENT(LIMIT)), u = clamp(up[at], ELEMENT(-LIMIT), ELEMENT(LIMIT));
    z[at] = g / (1.0 + exp(-SLOPE * g)) * (u + 1.0);
}
