#version 450
#extension GL_GOOGLE_include_directive : require
// Each row's CHOSEN experts of the largest logits, in falling order, and what they weigh. An invocation finds the ranks of every
// LOCAL-th expert by counting, over keys that order numbers which are none as well: there are always CHOSEN different ones.
//
// variant: route SUBGROUPS=0
// variant: route_subgroups SUBGROUPS=1
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint EXPERTS = 8u;
layout(constant_id = 2) const uint CHOSEN = 2u;
layout(constant_id = 3) const bool NORMALISED = true; // shares of the chosen, not of all
layout(constant_id = 4) const float SCALE = 1.0;
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer Logits { float logits[]; };
layout(set = 0, binding = 1) writeonly buffer Experts { uint experts[]; };
layout(set = 0, binding = 2) writeonly buffer Weights { float weights[]; };

#include "exp.glsl"
#include "nodes/keys.glsl"
#include "reduce.glsl"

shared uint keys[EXPERTS];

uint rank_of(uint expert) {
    uint rank = 0u, key = keys[expert];
    for (uint other = 0u; other < EXPERTS; other++)
        if (keys[other] > key || (keys[other] == key && other < expert)) rank++;
    return rank;
}

void main() {
    uint row = gl_WorkGroupID.y, lane = gl_LocalInvocationID.x, base = row * EXPERTS;
    float largest = -3.402823e38, total = 0.0;
    for (uint i = lane; i < EXPERTS; i += LOCAL) {
        keys[i] = key_of(floatBitsToUint(logits[base + i]), F32);
        largest = max(largest, logits[base + i]);
    }
    largest = workgroup_max(largest);
    barrier();
    for (uint i = lane; i < EXPERTS; i += LOCAL)
        if (!NORMALISED || rank_of(i) < CHOSEN) total += exp_below(logits[base + i] - largest);
    total = workgroup_sum(total);
    for (uint i = lane; i < EXPERTS; i += LOCAL) {
        uint rank = rank_of(i);
        if (rank >= CHOSEN) continue;
        experts[row * CHOSEN + rank] = i;
        weights[row * CHOSEN + rank] = exp_below(logits[base + i] - largest) / total * SCALE;
    }
}
