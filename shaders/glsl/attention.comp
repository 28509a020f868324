#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Attention of rows over their sequences' pages, with an online softmax (Flash-Decoding, Dao et al., 2023).
//
// A workgroup takes up to ROWS rows of one sequence, the query heads that share a key-value head, and SPLIT keys of the
// sequence, CHUNK at a time: each invocation scores its own keys for all those queries, then sums its own part of the values.
// Where a sequence has several splits, their sums go to `partial` and attention_merge.comp joins them.
//
// The rows of a tile may belong to several sequences: each is attended to in turn. With SINGLES only sequences of one row are
// looked at, without only the others, so that decodes and prefills of one step each run in their own shape.
//
// variant: attention_f16 HALVES=1 TEXELS=0 SUBGROUPS=0
// variant: attention_f16_subgroups HALVES=1 TEXELS=0 SUBGROUPS=1
// variant: attention_f16_texels HALVES=1 TEXELS=1 SUBGROUPS=0
// variant: attention_f16_texels_subgroups HALVES=1 TEXELS=1 SUBGROUPS=1
// variant: attention_f32 HALVES=0 TEXELS=0 SUBGROUPS=0
// variant: attention_f32_subgroups HALVES=0 TEXELS=0 SUBGROUPS=1
// variant: attention_f32_texels HALVES=0 TEXELS=1 SUBGROUPS=0
// variant: attention_f32_texels_subgroups HALVES=0 TEXELS=1 SUBGROUPS=1
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint ROWS = 1u;
layout(constant_id = 2) const uint SHARING = 3u; // query heads of a key-value head
layout(constant_id = 3) const uint KV_HEADS = 3u;
layout(constant_id = 4) const uint WIDTH = 64u;
layout(constant_id = 5) const uint PAGE = 16u;
layout(constant_id = 6) const uint CHUNK = 64u; // a multiple of LOCAL
layout(constant_id = 7) const uint ACROSS = 8u; // invocations that share a key's values; divides LOCAL and the vectors of a head
layout(constant_id = 8) const float SCALE = 0.125;
layout(constant_id = 9) const float SOFTCAP = 0.0;
layout(constant_id = 10) const bool MASKED = false; // some sequence may have a custom mask
layout(constant_id = 11) const bool SINKS = false;  // each head has a score that weighs and adds nothing
layout(local_size_x_id = 0) in;

#include "attended.glsl"
layout(set = 0, binding = 5) writeonly buffer Y { vec4 y[]; };
layout(set = 0, binding = 6) writeonly buffer Partial { vec4 partial[]; };
layout(set = 0, binding = 7) readonly buffer Sinks { float sinks[]; };
#include "step.glsl"

#include "activations.glsl"
#include "cache.glsl"
#include "reduce.glsl"
#include "sink.glsl"
#include "visibility.glsl"

const uint HEADS = KV_HEADS * SHARING;
const uint VECTORS = WIDTH / PER_VECTOR;
const uint QUERIES = ROWS * SHARING;
const uint OWN = CHUNK / LOCAL;         // keys of an invocation in a chunk
const uint GROUPS = LOCAL / ACROSS;     // keys whose values are summed at once
const uint STRIPS = VECTORS / ACROSS;   // vectors of a value that an invocation sums
const uint SUMS = STRIPS * QUERIES * 2u;
const uint UNROLLED = 2u;
const uint QUADS = (QUERIES + 3u) / 4u;
const float NOTHING = -1e30;
const uint NOWHERE = 0xFFFFFFFFu;

shared vec4 weights[QUADS * CHUNK]; // of four queries
shared uint places[CHUNK];
shared vec4 joined[GROUPS > 1u ? LOCAL * 2u : 1u];

vec4 sums[SUMS];
float peaks[QUERIES], totals[QUERIES];

// Scores and values of the keys `begin` … `end`, at most CHUNK of the sequence's.
void attend_chunk(uint sequence, uint row, uint last_row, uint head, uint begin, uint end) {
    uint lane = gl_LocalInvocationID.x, entries = step[PAGE_STARTS + sequence];
    uint mask = mask_of(sequence), first_row = 0u, count = 0u;
    if (MASKED) {
        first_row = step[QUERY_STARTS + sequence];
        count = step[PAGE_STARTS + sequence + 1u] - entries;
    }
    uint bases[OWN], seen[OWN], indexes[ROWS], positions[ROWS];
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        indexes[r] = step[ROW_INDEX + min(row + r, last_row)];
        positions[r] = step[POSITIONS + min(row + r, last_row)];
    }
    [[unroll]] for (uint n = 0u; n < OWN; n++) {
        uint local_key = n * LOCAL + lane, key = begin + local_key;
        uint entry = entries + min(key, end - 1u) / PAGE, slot = key % PAGE;
        uint page = step[PAGES + entry];
        bool written = key < end && (step[PAGE_BITS + entry] >> slot & 1u) == 1u;
        bool fresh = (step[FRESH_BITS + entry] >> slot & 1u) == 1u;
        int position = WINDOW > 0u ? int(key_positions[page * PAGE + slot]) : 0;
        seen[n] = 0u;
        [[unroll]] for (uint r = 0u; r < ROWS; r++) {
            bool visible = written && (!fresh || key <= indexes[r]);
            visible = visible && (WINDOW == 0u || int(positions[r]) - position < int(WINDOW));
            if (MASKED) {
                uint allowed = mask_bits(mask, min(row + r, last_row) - first_row, entry - entries, count);
                visible = visible && (allowed >> slot & 1u) == 1u;
            }
            seen[n] |= uint(visible) << r;
        }
        bases[n] = (page * KV_HEADS + head) * VECTORS * PAGE + slot;
        // What no row sees may hold anything, NaN too: it is never loaded.
        places[local_key] = seen[n] != 0u ? ((page * KV_HEADS + head) * PAGE + slot) * VECTORS : NOWHERE;
    }
    float scores[OWN * QUERIES];
    [[unroll]] for (uint i = 0u; i < OWN * QUERIES; i++) scores[i] = 0.0;
    for (uint v = 0u; v < VECTORS; v++) {
        vec4 low[QUERIES], high[QUERIES];
        [[unroll]] for (uint i = 0u; i < QUERIES; i++) {
            uint of = min(row + i / SHARING, last_row);
            uint at = ((of * HEADS + head * SHARING + i % SHARING) * WIDTH + v * PER_VECTOR) / 4u;
            low[i] = q_at(at);
            high[i] = HALVES == 1 ? q_at(at + 1u) : vec4(0.0);
        }
        [[unroll]] for (uint n = 0u; n < OWN; n++) {
            vec4 a, b;
            unpack_vector(key_at(bases[n] + v * PAGE), a, b);
            [[unroll]] for (uint i = 0u; i < QUERIES; i++) {
                vec4 products = a * low[i];
                if (HALVES == 1) products += b * high[i];
                scores[n * QUERIES + i] += (products.x + products.y) + (products.z + products.w);
            }
        }
    }
    [[unroll]] for (uint i = 0u; i < QUERIES; i++) {
        float peak = NOTHING;
        [[unroll]] for (uint n = 0u; n < OWN; n++) {
            float score = scores[n * QUERIES + i] * SCALE;
            if (SOFTCAP > 0.0) score = SOFTCAP * safe_tanh(score / SOFTCAP);
            score = (seen[n] >> (i / SHARING) & 1u) == 1u ? score : NOTHING;
            scores[n * QUERIES + i] = score;
            peak = max(peak, score);
        }
        peak = max(workgroup_max(peak), peaks[i]);
        float shrink = exp(peaks[i] - peak);
        peaks[i] = peak;
        totals[i] *= shrink;
        [[unroll]] for (uint n = 0u; n < OWN; n++) {
            float score = scores[n * QUERIES + i];
            scores[n * QUERIES + i] = score > NOTHING ? exp(score - peak) : 0.0;
            totals[i] += scores[n * QUERIES + i];
        }
        [[unroll]] for (uint s = 0u; s < STRIPS; s++) {
            sums[(s * QUERIES + i) * 2u] *= shrink;
            if (HALVES == 1) sums[(s * QUERIES + i) * 2u + 1u] *= shrink;
        }
    }
    [[unroll]] for (uint n = 0u; n < OWN; n++)
        [[unroll]] for (uint w = 0u; w < QUADS; w++) {
            vec4 four = vec4(0.0);
            [[unroll]] for (uint c = 0u; c < 4u; c++)
                if (w * 4u + c < QUERIES) four[c] = scores[n * QUERIES + min(w * 4u + c, QUERIES - 1u)];
            weights[w * CHUNK + n * LOCAL + lane] = four;
        }
    barrier();
    uint across = lane % ACROSS;
    for (uint first = lane / ACROSS; first < end - begin; first += GROUPS * UNROLLED) {
        [[unroll]] for (uint u = 0u; u < UNROLLED; u++) {
            uint key = first + u * GROUPS;
            uint place = key < CHUNK ? places[key] : NOWHERE;
            if (place == NOWHERE) continue;
            vec4 fours[QUADS];
            [[unroll]] for (uint w = 0u; w < QUADS; w++) fours[w] = weights[w * CHUNK + key];
            [[unroll]] for (uint s = 0u; s < STRIPS; s++) {
                vec4 a, b;
                unpack_vector(value_at(place + across + s * ACROSS), a, b);
                [[unroll]] for (uint i = 0u; i < QUERIES; i++) {
                    float weight = fours[i / 4u][i % 4u];
                    sums[(s * QUERIES + i) * 2u] += weight * a;
                    if (HALVES == 1) sums[(s * QUERIES + i) * 2u + 1u] += weight * b;
                }
            }
        }
    }
    barrier();
}

// The sums of all key groups, in the invocations of the first.
void join_groups(uint at) {
    uint lane = gl_LocalInvocationID.x;
    joined[2u * lane] = sums[at];
    joined[2u * lane + 1u] = sums[at + 1u];
    barrier();
    if (lane < ACROSS)
        for (uint g = 1u; g < GROUPS; g++) {
            sums[at] += joined[2u * (g * ACROSS + lane)];
            sums[at + 1u] += joined[2u * (g * ACROSS + lane) + 1u];
        }
    barrier();
}

void write_sums(uint at, bool whole, float share, uint s, uint i) {
    uint column = (s * ACROSS + gl_LocalInvocationID.x) * (PER_VECTOR / 4u);
    [[unroll]] for (uint f = 0u; f < PER_VECTOR / 4u; f++) {
        vec4 sum = sums[(s * QUERIES + i) * 2u + f];
        if (whole) y[at + column + f] = sum * share;
        else partial[at + column + f] = sum;
    }
}

void attend(uint sequence, uint row, uint last_row, uint head, uint split) {
    uint entries = step[PAGE_STARTS + sequence];
    uint length = (step[PAGE_STARTS + sequence + 1u] - entries) * PAGE;
    uint begin = split * SPLIT, end = SPLIT == 0u ? length : min(length, begin + SPLIT);
    if (begin >= max(length, 1u)) return;
    [[unroll]] for (uint i = 0u; i < SUMS; i++) sums[i] = vec4(0.0);
    [[unroll]] for (uint i = 0u; i < QUERIES; i++) {
        peaks[i] = NOTHING;
        totals[i] = 0.0;
    }
    for (uint at = begin; at < end; at += CHUNK)
        attend_chunk(sequence, row, last_row, head, at, min(at + CHUNK, end));
    bool whole = SPLIT == 0u || length <= SPLIT;
    [[unroll]] for (uint i = 0u; i < QUERIES; i++) {
        float total = workgroup_sum(totals[i]);
        uint query = head * SHARING + i % SHARING, of = row + i / SHARING;
        uint place = whole ? of * HEADS + query : (entries * PAGE / max(SPLIT, 1u) + sequence + split) * HEADS + query;
        uint at = place * (WIDTH / 4u + (whole ? 0u : 1u));
        float share = share_of(peaks[i], total, SINKS, SINKS ? sinks[query] : 0.0);
        [[unroll]] for (uint s = 0u; s < STRIPS; s++) {
            if (GROUPS > 1u) join_groups((s * QUERIES + i) * 2u);
            if (gl_LocalInvocationID.x < ACROSS && of <= last_row) write_sums(at, whole, share, s, i);
        }
        if (!whole && gl_LocalInvocationID.x == 0u) partial[at + WIDTH / 4u] = vec4(peaks[i], total, 0.0, 0.0);
    }
}

void main() {
    uint row = gl_WorkGroupID.x * ROWS, head = gl_WorkGroupID.y, split = gl_WorkGroupID.z;
    uint stop = min(row + ROWS, step[COUNTS]);
    while (row < stop) {
        uint sequence = sequence_of(row), next = step[QUERY_STARTS + sequence + 1u];
        bool single = next - step[QUERY_STARTS + sequence] == 1u;
        if (single == (SINGLES == 1u)) attend(sequence, row, min(next, stop) - 1u, head, split);
        row = min(next, stop);
    }
}
