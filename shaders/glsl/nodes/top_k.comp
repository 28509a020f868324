#version 450
#extension GL_GOOGLE_include_directive : require
// The k largest of each row in falling order, k ≤ 1024, and where they are; of equal ones the first. The k-th key is found
// digit by digit, then, where only some of its equals fit, the last of their indices; what is left is ranked by counting.
#include "rows.glsl"
#include "keys.glsl"
#include "histogram.glsl"

layout(constant_id = 2) const uint TYPE = F32;
layout(constant_id = 3) const uint K = 64u;

layout(set = 0, binding = 1) readonly buffer X { uint x[]; };
layout(set = 0, binding = 2) writeonly buffer Values { uint values[]; };
layout(set = 0, binding = 3) writeonly buffer Places { uint places[]; };
layout(push_constant) uniform Push {
    uint first, slots, rows, extent;
    uint x_start, values_start, places_start;
};

shared uint chosen_key[K], chosen_place[K], chosen;

// The key that `wanted` keys of the row reach; with `equal`, among the inverted indices of the keys that equal it.
uint select(uint base, inout uint wanted, bool among_equals, uint equal) {
    uint prefix = 0u;
    for (uint shift = 32u; shift > 0u; shift -= 8u) {
        clear_bins();
        uint known = shift == 32u ? 0u : 0xFFFFFFFFu << shift;
        for (uint i = LANE; i < extent; i += LOCAL) {
            uint key = key_of(x[base + i], TYPE);
            bool counts_ = !among_equals || key == equal;
            if (among_equals) key = ~i;
            if (counts_ && (key & known) == prefix) atomicAdd(bins[bin_place((key >> (shift - 8u)) & 0xFFu)], 1u);
        }
        prefix |= find_bin(wanted) << (shift - 8u);
    }
    return prefix;
}

void main() {
    uint row = this_row();
    if (row >= true_rows(first, slots, rows)) return;
    uint base = x_start + row * extent, wanted = K;
    uint least = select(base, wanted, false, 0u);
    // The last digit's bin counts the keys that equal the least: do all of them fit?
    uint equals = 0u, last = 0xFFFFFFFFu;
    for (uint copy = 0u; copy < COPIES; copy++) equals += bins[(least & 0xFFu) * COPIES + copy];
    if (equals > wanted) last = ~select(base, wanted, true, least);
    barrier();
    if (LANE == 0u) chosen = 0u;
    barrier();
    for (uint i = LANE; i < extent; i += LOCAL) {
        uint key = key_of(x[base + i], TYPE);
        if (key > least || (key == least && i <= last)) {
            uint place = atomicAdd(chosen, 1u);
            chosen_key[place] = key;
            chosen_place[place] = i;
        }
    }
    barrier();
    for (uint i = LANE; i < K; i += LOCAL) {
        uint key = chosen_key[i], place = chosen_place[i], rank = 0u;
        for (uint j = 0u; j < K; j++)
            if (chosen_key[j] > key || (chosen_key[j] == key && chosen_place[j] < place)) rank++;
        values[values_start + row * K + rank] = x[base + place];
        places[places_start + row * K + rank] = place;
    }
}
