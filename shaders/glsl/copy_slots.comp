#version 450
// Tokens of a paged state [pages, outer, slots, inner] to other slots, for i < counts[0], in two launches: the first gathers
// them into a scratch buffer, the second writes them out, so that all are read before any is written. Values are 16-byte
// vectors or words.
//
// variant: copy_slots_gather ELEMENT=uvec4 GATHER=1
// variant: copy_slots_gather_words ELEMENT=uint GATHER=1
// variant: copy_slots_scatter ELEMENT=uvec4 GATHER=0
// variant: copy_slots_scatter_words ELEMENT=uint GATHER=0
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint OUTER = 1u;
layout(constant_id = 2) const uint PAGE = 16u;  // slots
layout(constant_id = 3) const uint INNER = 16u; // elements of a slot that lie together
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer Slots { uint slots[]; };
layout(set = 0, binding = 1) buffer State { ELEMENT state[]; };
layout(set = 0, binding = 2) buffer Scratch { ELEMENT scratch[]; };

void main() {
    uint i = gl_GlobalInvocationID.x, copy = gl_WorkGroupID.y;
    if (i >= OUTER * INNER) return;
    uint page = slots[copy] / PAGE, slot = slots[copy] % PAGE;
    uint place = ((page * OUTER + i / INNER) * PAGE + slot) * INNER + i % INNER;
    uint kept = copy * OUTER * INNER + i;
    if (GATHER == 1) scratch[kept] = state[place];
    else state[place] = scratch[kept];
}
