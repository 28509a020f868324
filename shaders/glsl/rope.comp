#version 450
#extension GL_GOOGLE_include_directive : require
// Rotary positions (RoFormer, arXiv:2104.09864): turn pairs of each head's first ROTARY values; the others are copied. An
// invocation takes a pair, or two values that stay.
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint WIDTH = 64u; // values a head
layout(constant_id = 2) const uint ROTARY = 64u;
layout(constant_id = 3) const bool NEOX = true;
layout(constant_id = 4) const uint HEADS = 9u;
layout(constant_id = 5) const float MAGNITUDE = 1.0;
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer X { float x[]; };
layout(set = 0, binding = 1) readonly buffer Positions { uint positions[]; };
layout(set = 0, binding = 2) readonly buffer Frequencies { uvec2 frequencies[]; };
layout(set = 0, binding = 3) writeonly buffer Y { float y[]; };

#include "turns.glsl"

void main() {
    uint i = gl_GlobalInvocationID.x, token = gl_WorkGroupID.y;
    uint head = i / (WIDTH / 2u), pair = i % (WIDTH / 2u);
    if (head >= HEADS) return;
    uint base = (token * HEADS + head) * WIDTH;
    if (pair >= ROTARY / 2u) {
        y[base + 2u * pair] = x[base + 2u * pair];
        y[base + 2u * pair + 1u] = x[base + 2u * pair + 1u];
        return;
    }
    uint a = base + (NEOX ? pair : 2u * pair), b = NEOX ? a + ROTARY / 2u : a + 1u;
    vec2 turn = MAGNITUDE * cos_sin_of_turns(positions[token], frequencies[pair]);
    y[a] = x[a] * turn.x - x[b] * turn.y;
    y[b] = x[a] * turn.y + x[b] * turn.x;
}
