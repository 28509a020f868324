#version 450
#extension GL_GOOGLE_include_directive : require
// Write a row's keys, values and position into its slot. An invocation takes 16 bytes of keys and 16 of values.
//
// variant: kv_append_f16 HALVES=1
// variant: kv_append_f32 HALVES=0
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint HEADS = 3u;
layout(constant_id = 2) const uint WIDTH = 64u;
layout(constant_id = 3) const uint PAGE = 16u;
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer K { vec4 k[]; };
layout(set = 0, binding = 1) readonly buffer V { vec4 v[]; };
layout(set = 0, binding = 2) readonly buffer Positions { uint positions[]; };
layout(set = 0, binding = 3) readonly buffer Slots { uint write_slots[]; };
layout(set = 0, binding = 4) writeonly buffer Keys { uvec4 keys[]; };
layout(set = 0, binding = 5) writeonly buffer Values { uvec4 values[]; };
layout(set = 0, binding = 6) writeonly buffer KeyPositions { uint key_positions[]; };

#include "cache.glsl"

const uint VECTORS = WIDTH / PER_VECTOR;

void main() {
    uint i = gl_GlobalInvocationID.x, token = gl_WorkGroupID.y;
    if (i >= HEADS * VECTORS) return;
    uint head = i / VECTORS, vector = i % VECTORS, slot = write_slots[token];
    uint from = (token * HEADS * WIDTH + i * PER_VECTOR) / 4u;
#if HALVES
    uvec4 key = pack_vector(k[from], k[from + 1u]), value = pack_vector(v[from], v[from + 1u]);
#else
    uvec4 key = pack_vector(k[from], vec4(0.0)), value = pack_vector(v[from], vec4(0.0));
#endif
    uint place = slot / PAGE * HEADS + head;
    keys[(place * VECTORS + vector) * PAGE + slot % PAGE] = key;
    values[(place * PAGE + slot % PAGE) * VECTORS + vector] = value;
    if (i == 0u) key_positions[slot] = positions[token];
}
