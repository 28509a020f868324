#version 450
// What lies in each entry's slot of the engine's tokens, in place of what the passes gave; a slot past the end leaves that.
layout(constant_id = 0) const uint LOCAL = 64u;
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer Counts { uint counts[]; };
layout(set = 0, binding = 1) readonly buffer Slots { uint slots[]; };
layout(set = 0, binding = 2) readonly buffer Tokens { uint tokens[]; };
layout(set = 0, binding = 3) buffer Given { uint given[]; };
layout(push_constant) uniform Push {
    uint room;
    uint each; // entries of a pass
};

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < counts[0] * each && slots[i] < room) given[i] = tokens[slots[i]];
}
