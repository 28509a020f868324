#version 450
#extension GL_GOOGLE_include_directive : require
// Rope of queries and of keys, and kv_append of those keys, in one launch: an invocation turns a pair of a query, or turns
// and writes 16 bytes of keys and writes the values beside them.
//
// variant: rope_append_f16 HALVES=1
// variant: rope_append_f32 HALVES=0
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint HEADS = 9u;
layout(constant_id = 2) const uint KV_HEADS = 3u;
layout(constant_id = 3) const uint WIDTH = 64u;
layout(constant_id = 4) const uint ROTARY = 64u;
layout(constant_id = 5) const bool NEOX = true;
layout(constant_id = 6) const uint PAGE = 16u;
layout(constant_id = 7) const float MAGNITUDE = 1.0;
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer Q { float q[]; };
layout(set = 0, binding = 1) readonly buffer K { float k[]; };
layout(set = 0, binding = 2) readonly buffer V { vec4 v[]; };
layout(set = 0, binding = 3) readonly buffer Positions { uint positions[]; };
layout(set = 0, binding = 4) readonly buffer Slots { uint write_slots[]; };
layout(set = 0, binding = 5) readonly buffer Frequencies { uvec2 frequencies[]; };
layout(set = 0, binding = 6) writeonly buffer Y { float y[]; };
layout(set = 0, binding = 7) writeonly buffer Keys { uvec4 keys[]; };
layout(set = 0, binding = 8) writeonly buffer Values { uvec4 values[]; };
layout(set = 0, binding = 9) writeonly buffer KeyPositions { uint key_positions[]; };

#include "cache.glsl"
#include "turns.glsl"

const uint PAIRS = HEADS * WIDTH / 2u;
const uint VECTORS = WIDTH / PER_VECTOR;

void turn_query(uint token, uint i) {
    uint pair = i % (WIDTH / 2u), base = token * HEADS * WIDTH + i / (WIDTH / 2u) * WIDTH;
    if (pair >= ROTARY / 2u) {
        y[base + 2u * pair] = q[base + 2u * pair];
        y[base + 2u * pair + 1u] = q[base + 2u * pair + 1u];
        return;
    }
    uint a = base + (NEOX ? pair : 2u * pair), b = NEOX ? a + ROTARY / 2u : a + 1u;
    vec2 turn = MAGNITUDE * cos_sin_of_turns(positions[token], frequencies[pair]);
    y[a] = q[a] * turn.x - q[b] * turn.y;
    y[b] = q[a] * turn.y + q[b] * turn.x;
}

// The value that a key has in column d of its head after the turn.
float turned_key(uint base, uint position, uint d) {
    if (d >= ROTARY) return k[base + d];
    bool second = NEOX ? d >= ROTARY / 2u : (d & 1u) == 1u;
    uint pair = NEOX ? d % (ROTARY / 2u) : d / 2u;
    uint partner = NEOX ? (second ? d - ROTARY / 2u : d + ROTARY / 2u) : d ^ 1u;
    vec2 turn = MAGNITUDE * cos_sin_of_turns(position, frequencies[pair]);
    return k[base + d] * turn.x + k[base + partner] * (second ? turn.y : -turn.y);
}

void append(uint token, uint i) {
    uint head = i / VECTORS, vector = i % VECTORS, slot = write_slots[token], position = positions[token];
    uint base = (token * KV_HEADS + head) * WIDTH;
    vec4 low, high = vec4(0.0);
    for (uint c = 0u; c < 4u; c++) {
        low[c] = turned_key(base, position, vector * PER_VECTOR + c);
        if (HALVES == 1) high[c] = turned_key(base, position, vector * PER_VECTOR + 4u + c);
    }
    uint place = slot / PAGE * KV_HEADS + head, from = (base + vector * PER_VECTOR) / 4u;
    keys[(place * VECTORS + vector) * PAGE + slot % PAGE] = pack_vector(low, high);
    values[(place * PAGE + slot % PAGE) * VECTORS + vector] = pack_vector(v[from], HALVES == 1 ? v[from + 1u] : vec4(0.0));
    if (i == 0u) key_positions[slot] = position;
}

void main() {
    uint i = gl_GlobalInvocationID.x, token = gl_WorkGroupID.y;
    if (i < PAIRS) turn_query(token, i);
    else if (i < PAIRS + KV_HEADS * VECTORS) append(token, i - PAIRS);
}
