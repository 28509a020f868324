#version 450
#extension GL_GOOGLE_include_directive : require
// y[t, rows] = matrices[n − 1] · x[t], n = adapters[t], added to base, if there is one; nothing where n = 0. Down to a low rank a
// workgroup sums over a row of the matrix (WIDE); up from it an invocation does.
//
// variant: adapter_linear WIDE=0 SUBGROUPS=0
// variant: adapter_linear_wide WIDE=1 SUBGROUPS=0
// variant: adapter_linear_wide_subgroups WIDE=1 SUBGROUPS=1
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint OUTPUTS = 16u;
layout(constant_id = 2) const uint COLUMNS = 576u;
layout(constant_id = 3) const bool BASE = false;
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer X { float x[]; };
layout(set = 0, binding = 1) readonly buffer Matrices { float matrices[]; };
layout(set = 0, binding = 2) readonly buffer Adapters { uint adapters[]; };
layout(set = 0, binding = 3) readonly buffer Base { float base[]; }; // x again where there is none
layout(set = 0, binding = 4) writeonly buffer Y { float y[]; };

#if WIDE
#include "reduce.glsl"
#endif

void main() {
    uint token = gl_WorkGroupID.y, number = adapters[token];
#if WIDE
    uint output_ = gl_WorkGroupID.x, first = gl_LocalInvocationID.x, step_ = LOCAL;
#else
    uint output_ = gl_GlobalInvocationID.x, first = 0u, step_ = 1u;
    if (output_ >= OUTPUTS) return;
#endif
    float sum = 0.0;
    if (number > 0u) {
        uint row = ((number - 1u) * OUTPUTS + output_) * COLUMNS;
        for (uint i = first; i < COLUMNS; i += step_) sum += matrices[row + i] * x[token * COLUMNS + i];
    }
#if WIDE
    sum = workgroup_sum(sum);
    if (gl_LocalInvocationID.x > 0u) return;
#endif
    uint at = token * OUTPUTS + output_;
    y[at] = BASE ? base[at] + sum : sum;
}
