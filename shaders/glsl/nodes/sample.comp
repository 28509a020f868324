#version 450
#extension GL_GOOGLE_include_directive : require
// A token drawn from the last row of each pass: of the logits that a mask leaves, over a temperature, narrowed in up to four
// stages (top-k, top-p, min-p) to those that a draw may take. A workgroup takes a row.
//
// Only the first digit of the first stage looks at the whole row. What can still be drawn then goes to a list, key and
// index, and everything else, the noise too, is done for the list alone.
#include "rows.glsl"
#include "keys.glsl"
#include "../exp.glsl"
#include "histogram.glsl"
#include "masses.glsl"
#include "random.glsl"

#define TOP_K 1u
#define TOP_P 2u
#define MIN_P 3u
#define NOT_MASKED 0u
#define MASKED_FIRST 1u
#define MASKED_LAST 2u
layout(constant_id = 2) const uint MASK = NOT_MASKED; // before or after the temperature
layout(constant_id = 3) const bool TEMPERED = true;
layout(constant_id = 4) const uint STAGE_1 = TOP_K;
layout(constant_id = 5) const uint STAGE_2 = TOP_P;
layout(constant_id = 6) const uint STAGE_3 = 0u;
layout(constant_id = 7) const uint STAGE_4 = 0u;
layout(constant_id = 8) const bool ALIGNED = true; // rows begin and end at multiples of four

layout(set = 0, binding = 1) readonly buffer Logits { float logits[]; };
layout(set = 0, binding = 1) readonly buffer Fours { vec4 fours[]; };
layout(set = 0, binding = 2) readonly buffer Inputs { uint inputs[]; };
layout(set = 0, binding = 3) buffer List { uint list[]; };
layout(set = 0, binding = 4) writeonly buffer Tokens { uint tokens[]; };

struct Argument {
    uint start; // in inputs, a word for each pass; or none
    uint value; // where there is no start
};
layout(push_constant) uniform Push {
    uint first, slots, rows, extent;
    uint pass_rows, rows_start, positions_start, draw_keys_start, draw;
    float one; // what a weight of 1 counts
    uint mask_start;
    Argument temperature, stage_1, stage_2, stage_3, stage_4;
};
#define NOWHERE 0xFFFFFFFFu

shared uint best_key, best_place, listed;

uint argument_of(Argument argument, uint pass) {
    return argument.start == NOWHERE ? argument.value : inputs[argument.start + pass];
}

struct Row {
    uint logits, mask; // where they begin
    float temperature;
    uint list; // where its keys begin; `extent` words later, its indices
};

// The keys of entries `at` … `at` + 3; 0, which no number has, past the row's end.
uvec4 keys_at(Row row, uint at) {
    vec4 x;
    if (ALIGNED) x = fours[(row.logits + at) >> 2];
    else for (uint j = 0u; j < 4u; j++) x[j] = logits[row.logits + min(at + j, extent - 1u)];
    uint bits = MASK == NOT_MASKED ? 0u : inputs[row.mask + (at >> 5)] >> (at & 31u);
    uvec4 keys;
    for (uint j = 0u; j < 4u; j++) {
        float nothing = uintBitsToFloat(0xFF800000u);
        bool kept = ((bits >> j) & 1u) != 0u;
        if (MASK == MASKED_FIRST && !kept) x[j] = nothing;
        if (TEMPERED) x[j] = x[j] / row.temperature;
        if (MASK == MASKED_LAST && !kept) x[j] = nothing;
        keys[j] = ALIGNED || at + j < extent ? key_of(floatBitsToUint(x[j]), F32) : 0u;
    }
    return keys;
}

float number(uint key) { return uintBitsToFloat(word_of(key)); }

// The largest key of all invocations.
uint workgroup_max(uint key) {
    barrier();
    if (LANE == 0u) best_key = 0u;
    barrier();
    atomicMax(best_key, key);
    barrier();
    return best_key;
}

// The least of all invocations.
uint workgroup_min(uint place) {
    barrier();
    if (LANE == 0u) best_place = 0xFFFFFFFFu;
    barrier();
    atomicMin(best_place, place);
    barrier();
    return best_place;
}

uint digit(uint key, uint shift) { return (key >> (shift - 8u)) & 0xFFu; }

void clear(uint stage) {
    if (stage == TOP_K) clear_bins();
    else clear_masses();
}

void count_key(uint stage, uint key, uint best, uint shift) {
    uint place = bin_place(digit(key, shift));
    if (stage == TOP_K) atomicAdd(bins[place], 1u);
    else add_mass(place, exp_below(number(key) - number(best)), one);
}

uint find_digit(uint stage, uint shift, float share, inout uint wanted, inout Mass mass) {
    if (stage == TOP_K) return find_bin(wanted) << (shift - 8u);
    sum_blocks();
    if (shift == 32u) mass = share_of(total_mass(), share);
    return find_mass(mass) << (shift - 8u);
}

// The keys from `least` on, and where they are, into the list; gives how many there are.
uint make_list(Row row, uint least) {
    barrier();
    if (LANE == 0u) listed = 0u;
    barrier();
    for (uint at = 4u * LANE; at < extent; at += 4u * LOCAL) {
        uvec4 keys = keys_at(row, at);
        for (uint j = 0u; j < 4u; j++)
            if (keys[j] >= max(least, 1u)) {
                uint place = row.list + atomicAdd(listed, 1u);
                list[place] = keys[j];
                list[place + extent] = at + j;
            }
    }
    // Others will read what this one wrote.
    memoryBarrierBuffer();
    barrier();
    return listed;
}

// The least key that a stage leaves of those from `edge` on. The first stage finds a digit in the whole row, then makes the
// list.
uint narrow(Row row, uint stage, uint argument, uint best, uint edge, bool is_first, inout uint count) {
    float share = uintBitsToFloat(argument);
    uint prefix = 0u, wanted = clamp(argument, 1u, extent);
    // What leaves all that there is: p from 1 on, k up to the row's length.
    bool all_ = stage == TOP_P ? !(share < 1.0) : stage == TOP_K && wanted == extent;
    if (stage == MIN_P) {
        // Of nothing all is left; of what is no share (negative, infinite, NaN) nothing.
        prefix = share == 0.0 ? 0u : 0xFFFFFFFFu;
        if (share > 0.0 && !isinf(share)) {
            // The logarithm is of normal numbers.
            bool tiny = share < 1.1754944e-38;
            float least = number(best) + log_normal(tiny ? share * 16777216.0 : share) - (tiny ? 16.635532 : 0.0);
            prefix = key_of(floatBitsToUint(least), F32);
        }
        all_ = true;
    }
    Mass mass = Mass(0u, 0u);
    uint shift = 32u;
    if (is_first) {
        if (!all_) {
            // Counts were made with the maximum; weights need it first.
            if (stage == TOP_P) {
                clear_masses();
                for (uint at = 4u * LANE; at < extent; at += 4u * LOCAL) {
                    uvec4 keys = keys_at(row, at);
                    for (uint j = 0u; j < 4u; j++)
                        if (keys[j] != 0u) count_key(TOP_P, keys[j], best, shift);
                }
            }
            prefix = find_digit(stage, shift, max(share, 0.0), wanted, mass);
            shift = 24u;
        }
        count = make_list(row, prefix);
    }
    if (!all_)
        for (; shift > 0u; shift -= 8u) {
            clear(stage);
            uint known = shift == 32u ? 0u : 0xFFFFFFFFu << shift;
            for (uint i = LANE; i < count; i += LOCAL) {
                uint key = list[row.list + i];
                if (key >= edge && (key & known) == prefix) count_key(stage, key, best, shift);
            }
            prefix |= find_digit(stage, shift, max(share, 0.0), wanted, mass);
        }
    return max(edge, prefix);
}

uint stream_word(uint row, uint half_) { return inputs[draw_keys_start + 2u * row + half_]; }

// The listed entry from `edge` on that is largest with its noise, of equal ones the first.
uint drawn(Row row, uint pass, uint edge, uint count) {
    uint number_of_row = pass * pass_rows + pass_rows - 1u;
    uvec2 seed = uvec2(stream_word(number_of_row, 0u), stream_word(number_of_row, 1u));
    uvec2 stream = threefry(seed, uvec2(inputs[positions_start + number_of_row], draw));
    uint best = 0u, place = 0xFFFFFFFFu;
    for (uint i = LANE; i < count; i += LOCAL) {
        uint key = list[row.list + i];
        if (key >= edge) {
            uint index = list[row.list + extent + i];
            uint noisy = key_of(floatBitsToUint(number(key) + gumbel(stream, index)), F32);
            if (noisy > best || (noisy == best && index < place)) {
                best = noisy;
                place = index;
            }
        }
    }
    uint winner = workgroup_max(best);
    uint found = workgroup_min(best == winner ? place : 0xFFFFFFFFu);
    return found == 0xFFFFFFFFu ? 0u : found;
}

void main() {
    uint slot = this_row();
    if (slot >= true_rows(first, slots, rows)) return;
    uint pass = first + slot;
    uint words = (extent + 31u) / 32u;
    Row row = Row(inputs[rows_start + pass * pass_rows + pass_rows - 1u] * extent, mask_start + pass * words,
                  TEMPERED ? uintBitsToFloat(argument_of(temperature, pass)) : 1.0, slot * 2u * extent);
    uint best = 0u, place = 0xFFFFFFFFu;
    if (STAGE_1 == TOP_K) clear_bins();
    for (uint at = 4u * LANE; at < extent; at += 4u * LOCAL) {
        uvec4 keys = keys_at(row, at);
        for (uint j = 0u; j < 4u; j++) {
            if (STAGE_1 == TOP_K && keys[j] != 0u) count_key(TOP_K, keys[j], 0u, 32u);
            if (keys[j] > best) {
                best = keys[j];
                place = at + j;
            }
        }
    }
    uint most = workgroup_max(best), token;
    if ((word_of(most) & 0x7F800000u) == 0x7F800000u) {
        // An infinite maximum, or nothing left: the first of those.
        token = workgroup_min(best == most ? place : 0xFFFFFFFFu);
    } else {
        uint count = 0u;
        uint edge = narrow(row, STAGE_1, argument_of(stage_1, pass), most, 0u, true, count);
        if (STAGE_2 != 0u) edge = narrow(row, STAGE_2, argument_of(stage_2, pass), most, edge, false, count);
        if (STAGE_3 != 0u) edge = narrow(row, STAGE_3, argument_of(stage_3, pass), most, edge, false, count);
        if (STAGE_4 != 0u) edge = narrow(row, STAGE_4, argument_of(stage_4, pass), most, edge, false, count);
        token = drawn(row, pass, edge, count);
    }
    if (LANE == 0u) tokens[pass] = token;
}
