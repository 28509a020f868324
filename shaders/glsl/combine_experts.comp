#version 450
// y[t] = Σ_j weights[t,j] · the j-th part of x[t], in vectors of four or in words.
//
// variant: combine_experts ELEMENT=vec4
// variant: combine_experts_words ELEMENT=float
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint ELEMENTS = 144u; // of a row of y
layout(constant_id = 2) const uint CHOSEN = 2u;
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer X { ELEMENT x[]; };
layout(set = 0, binding = 1) readonly buffer Weights { float weights[]; };
layout(set = 0, binding = 2) writeonly buffer Y { ELEMENT y[]; };

void main() {
    uint i = gl_GlobalInvocationID.x, row = gl_WorkGroupID.y;
    if (i >= ELEMENTS) return;
    ELEMENT sum = ELEMENT(0.0);
    for (uint j = 0u; j < CHOSEN; j++) sum += weights[row * CHOSEN + j] * x[(row * CHOSEN + j) * ELEMENTS + i];
    y[row * ELEMENTS + i] = sum;
}
