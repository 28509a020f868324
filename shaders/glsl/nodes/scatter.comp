#version 450
#extension GL_GOOGLE_include_directive : require
// Each row changed at its indices, in their order. Every entry belongs to one invocation, which alone changes it: the result
// is that of one index after the other, also for sums of floats.
#include "rows.glsl"
#include "keys.glsl"

#define SET 0u
#define ADD 1u
#define LEAST 2u
#define MOST 3u
layout(constant_id = 1) const uint TYPE = F32;
layout(constant_id = 2) const uint MODE = SET;
layout(constant_id = 3) const bool IS_FIRST = true;

layout(set = 0, binding = 1) readonly buffer X { uint x[]; };
layout(set = 0, binding = 2) readonly buffer Indices { uint indices[]; };
layout(set = 0, binding = 3) readonly buffer Updates { uint updates[]; };
layout(set = 0, binding = 4) buffer Y { uint y[]; };
layout(push_constant) uniform Push {
    uint first, slots, rows, extent;
    uint x_start, indices_start, updates_start, y_start;
    uint count, begin, end; // indices of a row, and which of them this launch takes
    uint update_entries;    // how many entries share an update
};

uint changed(uint old, uint update) {
    if (MODE == SET) return update;
    if (MODE == ADD) return TYPE == F32 ? floatBitsToUint(uintBitsToFloat(old) + uintBitsToFloat(update)) : old + update;
    bool less = key_of(update, TYPE) < key_of(old, TYPE), more = key_of(update, TYPE) > key_of(old, TYPE);
    return (MODE == LEAST ? less : more) ? update : old;
}

void main() {
    uint row = this_row();
    if (row >= true_rows(first, slots, rows)) return;
    uint base = y_start + row * extent;
    if (IS_FIRST)
        for (uint i = LANE; i < extent; i += LOCAL) y[base + i] = x[x_start + row * extent + i];
    for (uint j = begin; j < end; j++) {
        // A negative index is out of range as well.
        uint entry = row * count + j, index = indices[indices_start + entry];
        if (index < extent && index % LOCAL == LANE)
            y[base + index] = changed(y[base + index], updates[updates_start + entry / update_entries]);
    }
}
