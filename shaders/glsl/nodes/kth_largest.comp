#version 450
#extension GL_GOOGLE_include_directive : require
// The k-th largest of each row: four digits of its key are found from the top.
#include "rows.glsl"
#include "keys.glsl"
#include "histogram.glsl"

layout(set = 0, binding = 1) readonly buffer X { uint x[]; };
layout(set = 0, binding = 2) readonly buffer Argument { uint argument[]; };
layout(set = 0, binding = 3) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform Push {
    uint first, slots, rows, extent;
    uint x_start, argument_start, argument_rows, y_start; // argument_rows: how many rows share an argument
    uint is_signed;
};

void main() {
    uint row = this_row();
    if (row >= true_rows(first, slots, rows)) return;
    uint k = argument[argument_start + row / argument_rows];
    uint wanted = is_signed != 0u && int(k) < 1 ? 1u : clamp(k, 1u, extent);
    uint base = x_start + row * extent, prefix = 0u;
    for (uint shift = 32u; shift > 0u; shift -= 8u) {
        clear_bins();
        uint known = shift == 32u ? 0u : 0xFFFFFFFFu << shift;
        for (uint i = LANE; i < extent; i += LOCAL) {
            uint key = key_of(x[base + i], F32);
            if ((key & known) == prefix) atomicAdd(bins[bin_place((key >> (shift - 8u)) & 0xFFu)], 1u);
        }
        prefix |= find_bin(wanted) << (shift - 8u);
    }
    if (LANE == 0u) y[y_start + row] = word_of(prefix);
}
