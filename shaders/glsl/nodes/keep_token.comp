#version 450
// Each entry of the passes' values into its slot of the engine's tokens, where later passes may find it; a slot past the end
// keeps nothing.
layout(constant_id = 0) const uint LOCAL = 64u;
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer Counts { uint counts[]; };
layout(set = 0, binding = 1) readonly buffer Chosen { uint chosen[]; };
layout(set = 0, binding = 2) readonly buffer Slots { uint slots[]; };
layout(set = 0, binding = 3) buffer Tokens { uint tokens[]; };
layout(push_constant) uniform Push {
    uint room;
    uint each; // entries of a pass
};

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < counts[0] * each && slots[i] < room) tokens[slots[i]] = chosen[i];
}
