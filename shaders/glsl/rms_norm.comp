#version 450
#extension GL_GOOGLE_include_directive : require
// Each of a row's equal groups divided by its root mean square, times (weight + offset); with ADD of x + residual, which is
// written too. A workgroup takes a group.
//
// variant: rms_norm ADD=0 SUBGROUPS=0
// variant: rms_norm_subgroups ADD=0 SUBGROUPS=1
// variant: add_rms_norm ADD=1 SUBGROUPS=0
// variant: add_rms_norm_subgroups ADD=1 SUBGROUPS=1
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint WIDTH = 576u; // of a group
layout(constant_id = 2) const float EPS = 1e-5;
layout(constant_id = 3) const float OFFSET = 0.0;
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer X { float x[]; };
layout(set = 0, binding = 1) readonly buffer Weight { float weight[]; };
layout(set = 0, binding = 2) writeonly buffer Y { float y[]; };
#if ADD
layout(set = 0, binding = 3) readonly buffer Residual { float residual[]; };
layout(set = 0, binding = 4) writeonly buffer Total { float total[]; };
#endif

#include "reduce.glsl"

float value_at(uint i) {
#if ADD
    return x[i] + residual[i];
#else
    return x[i];
#endif
}

void main() {
    uint base = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * WIDTH;
    float squares = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < WIDTH; i += LOCAL) {
        float value = value_at(base + i);
#if ADD
        total[base + i] = value;
#endif
        squares += value * value;
    }
    float inverse = 1.0 / sqrt(workgroup_sum(squares) / float(WIDTH) + EPS);
    for (uint i = gl_LocalInvocationID.x; i < WIDTH; i += LOCAL)
        y[base + i] = value_at(base + i) * inverse * (weight[i] + OFFSET);
}
