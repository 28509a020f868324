#version 450
#extension GL_GOOGLE_include_directive : require
// One pass of a stable radix sort of each row's indices, by the digit of BITS bits at `shift` of their keys. An invocation
// takes a stretch of the row: it counts its digits, learns where each of them begins, and moves its indices there.
// The first pass takes the indices in order; the last one writes the entries too.
#include "rows.glsl"
#include "keys.glsl"

layout(constant_id = 1) const uint TYPE = F32;
layout(constant_id = 2) const uint BITS = 4u;
layout(constant_id = 3) const bool FALLING = false;
layout(constant_id = 4) const bool IS_FIRST = false;
layout(constant_id = 5) const bool IS_LAST = false;

layout(set = 0, binding = 1) readonly buffer X { uint x[]; };
layout(set = 0, binding = 2) readonly buffer From { uint from[]; };
layout(set = 0, binding = 3) writeonly buffer To { uint to[]; };
layout(set = 0, binding = 4) writeonly buffer Values { uint values[]; };
layout(push_constant) uniform Push {
    uint first, slots, rows, extent;
    uint x_start, from_start, to_start, values_start, kept, shift; // the first `kept` entries are written
};

#define DIGITS (1u << BITS)
shared uint places[DIGITS * LOCAL], sums[LOCAL];

uint digit(uint word) {
    uint key = key_of(word, TYPE);
    return ((FALLING ? ~key : key) >> shift) & (DIGITS - 1u);
}

void main() {
    uint row = this_row();
    if (row >= true_rows(first, slots, rows)) return;
    uint base = x_start + row * extent, source = from_start + row * extent;
    uint stretch = (extent + LOCAL - 1u) / LOCAL;
    uint begin = min(LANE * stretch, extent), end = min(begin + stretch, extent);
    for (uint d = 0u; d < DIGITS; d++) places[d * LOCAL + LANE] = 0u;
    for (uint i = begin; i < end; i++) places[digit(x[base + (IS_FIRST ? i : from[source + i])]) * LOCAL + LANE]++;
    barrier();
    // Counts become places: digit by digit, in each the invocations in order. An invocation sums DIGITS of them.
    uint total = 0u;
    for (uint i = LANE * DIGITS; i < (LANE + 1u) * DIGITS; i++) total += places[i];
    sums[LANE] = total;
    barrier();
    total = 0u;
    for (uint i = 0u; i < LANE; i++) total += sums[i];
    for (uint i = LANE * DIGITS; i < (LANE + 1u) * DIGITS; i++) {
        uint count = places[i];
        places[i] = total;
        total += count;
    }
    barrier();
    for (uint i = begin; i < end; i++) {
        uint index = IS_FIRST ? i : from[source + i], word = x[base + index];
        uint place = places[digit(word) * LOCAL + LANE]++;
        if (!IS_LAST) to[to_start + row * extent + place] = index;
        else if (place < kept) {
            to[to_start + row * kept + place] = index;
            values[values_start + row * kept + place] = word;
        }
    }
}
