#version 450
#extension GL_GOOGLE_include_directive : require
// The largest entry of each row down to which the entries, likeliest first, have probability p: four digits of its key are
// found from the top, by the probability that each digit holds.
#include "rows.glsl"
#include "keys.glsl"
#include "../exp.glsl"
#include "masses.glsl"

layout(set = 0, binding = 1) readonly buffer X { uint x[]; };
layout(set = 0, binding = 2) readonly buffer Argument { float argument[]; };
layout(set = 0, binding = 3) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform Push {
    uint first, slots, rows, extent;
    uint x_start, argument_start, argument_rows, y_start; // argument_rows: how many rows share an argument
    float one;                                            // what a weight of 1 counts
};

shared uint highest[16], lowest[16];

// The largest and the least key of a row.
uvec2 extremes(uint base) {
    uint high = 0u, low = 0xFFFFFFFFu;
    for (uint i = LANE; i < extent; i += LOCAL) {
        uint key = key_of(x[base + i], F32);
        high = max(high, key);
        low = min(low, key);
    }
    barrier();
    if (LANE < 16u) {
        highest[LANE] = 0u;
        lowest[LANE] = 0xFFFFFFFFu;
    }
    barrier();
    atomicMax(highest[LANE % 16u], high);
    atomicMin(lowest[LANE % 16u], low);
    barrier();
    for (uint i = 0u; i < 16u; i++) {
        high = max(high, highest[i]);
        low = min(low, lowest[i]);
    }
    return uvec2(high, low);
}

uint threshold(uint base, float p, float best) {
    Mass wanted = Mass(0u, 0u);
    uint prefix = 0u;
    for (uint shift = 32u; shift > 0u; shift -= 8u) {
        clear_masses();
        uint known = shift == 32u ? 0u : 0xFFFFFFFFu << shift;
        for (uint i = LANE; i < extent; i += LOCAL) {
            uint word = x[base + i], key = key_of(word, F32);
            if ((key & known) == prefix) {
                uint bin = (key >> (shift - 8u)) & 0xFFu;
                add_mass(bin_place(bin), exp_below(uintBitsToFloat(word) - best), one);
            }
        }
        sum_blocks();
        if (shift == 32u) wanted = share_of(total_mass(), p);
        prefix |= find_mass(wanted) << (shift - 8u);
    }
    return prefix;
}

void main() {
    uint row = this_row();
    if (row >= true_rows(first, slots, rows)) return;
    uint base = x_start + row * extent;
    float p = argument[argument_start + row / argument_rows];
    uvec2 ends = extremes(base);
    uint best = word_of(ends.x), found = ends.x;
    if (!(p < 1.0)) found = ends.y;
    // An infinite maximum: nothing else is possible.
    else if ((best & 0x7F800000u) != 0x7F800000u) found = threshold(base, max(p, 0.0), uintBitsToFloat(best));
    if (LANE == 0u) y[y_start + row] = word_of(found);
}
