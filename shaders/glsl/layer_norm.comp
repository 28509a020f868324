#version 450
#extension GL_GOOGLE_include_directive : require
// A row less its mean, divided by its standard deviation, times weight (+ bias). A workgroup takes a row.
//
// variant: layer_norm SUBGROUPS=0
// variant: layer_norm_subgroups SUBGROUPS=1
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint WIDTH = 768u;
layout(constant_id = 2) const float EPS = 1e-5;
layout(constant_id = 3) const bool BIAS = false;
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer X { float x[]; };
layout(set = 0, binding = 1) readonly buffer Weight { float weight[]; };
layout(set = 0, binding = 2) readonly buffer Bias { float bias[]; }; // the weight again where there is none
layout(set = 0, binding = 3) writeonly buffer Y { float y[]; };

#include "reduce.glsl"

void main() {
    uint base = gl_WorkGroupID.y * WIDTH;
    float sum = 0.0, squares = 0.0;
    for (uint i = gl_LocalInvocationID.x; i < WIDTH; i += LOCAL) sum += x[base + i];
    float mean = workgroup_sum(sum) / float(WIDTH);
    for (uint i = gl_LocalInvocationID.x; i < WIDTH; i += LOCAL) {
        float centred = x[base + i] - mean;
        squares += centred * centred;
    }
    float inverse = 1.0 / sqrt(workgroup_sum(squares) / float(WIDTH) + EPS);
    for (uint i = gl_LocalInvocationID.x; i < WIDTH; i += LOCAL)
        y[base + i] = (x[base + i] - mean) * inverse * weight[i] + (BIAS ? bias[i] : 0.0);
}
