#version 450
#extension GL_GOOGLE_include_directive : require
// Join the splits of sequences of one row: each split's sums count by its peak and its total. A split has the WIDTH / 4 vectors
// of its sums, then one with the peak and the total.
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint HEADS = 9u;
layout(constant_id = 2) const uint WIDTH = 64u;
layout(constant_id = 3) const uint PAGE = 16u;
layout(constant_id = 4) const bool SINKS = false; // each head has a score that weighs and adds nothing
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer Partial { vec4 partial[]; };
layout(set = 0, binding = 1) readonly buffer Step { uint step[]; };
layout(set = 0, binding = 2) writeonly buffer Y { vec4 y[]; };
layout(set = 0, binding = 3) readonly buffer Sinks { float sinks[]; };
#include "step.glsl"

#include "sink.glsl"

const uint FOURS = WIDTH / 4u;

void main() {
    uint sequence = gl_WorkGroupID.x, head = gl_WorkGroupID.y;
    uint row = step[QUERY_STARTS + sequence], entries = step[PAGE_STARTS + sequence];
    uint length = (step[PAGE_STARTS + sequence + 1u] - entries) * PAGE;
    if (step[QUERY_STARTS + sequence + 1u] - row != 1u || length <= SPLIT) return;
    uint splits = (length + SPLIT - 1u) / SPLIT, stride = HEADS * (FOURS + 1u);
    uint first = ((entries * PAGE / SPLIT + sequence) * HEADS + head) * (FOURS + 1u);
    for (uint i = gl_LocalInvocationID.x; i < FOURS; i += LOCAL) {
        float peak = -1e30, total = 0.0;
        vec4 sum = vec4(0.0);
        for (uint s = 0u; s < splits; s++) {
            vec2 split = partial[first + s * stride + FOURS].xy;
            float joint = max(peak, split.x), old = exp(peak - joint), weight = exp(split.x - joint);
            total = total * old + split.y * weight;
            sum = sum * old + partial[first + s * stride + i] * weight;
            peak = joint;
        }
        y[(row * HEADS + head) * FOURS + i] = sum * share_of(peak, total, SINKS, SINKS ? sinks[head] : 0.0);
    }
}
