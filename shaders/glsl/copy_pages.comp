#version 450
// Page targets[i] = page sources[i] of a state, for i < counts[0]; pages are so many 16-byte vectors or, with WORDS, words.
//
// variant: copy_pages ELEMENT=uvec4
// variant: copy_pages_words ELEMENT=uint
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint ELEMENTS = 64u; // of a page
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer Sources { uint sources[]; };
layout(set = 0, binding = 1) readonly buffer Targets { uint targets[]; };
layout(set = 0, binding = 2) buffer State { ELEMENT state[]; };

void main() {
    uint i = gl_GlobalInvocationID.x, copy = gl_WorkGroupID.y;
    if (i < ELEMENTS) state[targets[copy] * ELEMENTS + i] = state[sources[copy] * ELEMENTS + i];
}
