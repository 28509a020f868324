#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// Attention of sequences with several rows, a row an invocation: its queries and sums stay in registers, and there is neither
// shared memory nor any barrier. For narrow heads; see attention.comp for the others.
//
// A workgroup takes LOCAL rows and TOGETHER query heads of one key-value head, and goes from key to key. The largest score so
// far isn't kept exactly: sums are only rescaled when a score exceeds the reference by so much that its exponential would
// grow out of hand.
//
// variant: attention_rows_f16 HALVES=1 TEXELS=0
// variant: attention_rows_f16_texels HALVES=1 TEXELS=1
// variant: attention_rows_f32 HALVES=0 TEXELS=0
// variant: attention_rows_f32_texels HALVES=0 TEXELS=1
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint SHARING = 3u; // query heads of a key-value head
layout(constant_id = 2) const uint KV_HEADS = 3u;
layout(constant_id = 3) const uint WIDTH = 64u;
layout(constant_id = 4) const uint PAGE = 16u;
layout(constant_id = 5) const uint TOGETHER = 3u; // divides SHARING
layout(constant_id = 6) const float SCALE = 0.125;
layout(constant_id = 7) const float SOFTCAP = 0.0;
layout(constant_id = 8) const bool MASKED = false; // some sequence may have a custom mask
layout(constant_id = 9) const bool SINKS = false;  // each head has a score that weighs and adds nothing
layout(local_size_x_id = 0) in;

#include "attended.glsl"
layout(set = 0, binding = 5) writeonly buffer Y { vec4 y[]; };
layout(set = 0, binding = 6) readonly buffer Sinks { float sinks[]; };
#include "step.glsl"

#include "activations.glsl"
#include "cache.glsl"
#include "sink.glsl"
#include "visibility.glsl"

const uint HEADS = KV_HEADS * SHARING;
const uint VECTORS = WIDTH / PER_VECTOR;
const uint FOURS = WIDTH / 4u;
const uint OF_VECTOR = PER_VECTOR / 4u;
const float NOTHING = -1e30;
const float MARGIN = 12.0;

vec4 queries[TOGETHER * FOURS], sums[TOGETHER * FOURS];
float references[TOGETHER], totals[TOGETHER];

void attend_key(uint place, uint value_place, bool visible) {
    float scores[TOGETHER];
    [[unroll]] for (uint h = 0u; h < TOGETHER; h++) scores[h] = 0.0;
    [[unroll]] for (uint v = 0u; v < VECTORS; v++) {
        vec4 a, b;
        unpack_vector(key_at(place + v * PAGE), a, b);
        [[unroll]] for (uint h = 0u; h < TOGETHER; h++) {
            vec4 products = a * queries[h * FOURS + v * OF_VECTOR];
            if (OF_VECTOR == 2u) products += b * queries[h * FOURS + v * OF_VECTOR + OF_VECTOR - 1u];
            scores[h] += (products.x + products.y) + (products.z + products.w);
        }
    }
    bool grown = false;
    [[unroll]] for (uint h = 0u; h < TOGETHER; h++) {
        float score = scores[h] * SCALE;
        if (SOFTCAP > 0.0) score = SOFTCAP * safe_tanh(score / SOFTCAP);
        scores[h] = visible ? score : NOTHING;
        grown = grown || scores[h] > references[h] + MARGIN;
    }
    if (grown) {
        [[unroll]] for (uint h = 0u; h < TOGETHER; h++) {
            float reference = max(references[h], scores[h]), shrink = exp(references[h] - reference);
            references[h] = reference;
            totals[h] *= shrink;
            [[unroll]] for (uint i = 0u; i < FOURS; i++) sums[h * FOURS + i] *= shrink;
        }
    }
    [[unroll]] for (uint h = 0u; h < TOGETHER; h++) {
        scores[h] = visible ? exp(scores[h] - references[h]) : 0.0;
        totals[h] += scores[h];
    }
    [[unroll]] for (uint v = 0u; v < VECTORS; v++) {
        vec4 a, b;
        unpack_vector(value_at(value_place + v), a, b);
        [[unroll]] for (uint h = 0u; h < TOGETHER; h++) {
            sums[h * FOURS + v * OF_VECTOR] += scores[h] * a;
            if (OF_VECTOR == 2u) sums[h * FOURS + v * OF_VECTOR + OF_VECTOR - 1u] += scores[h] * b;
        }
    }
}

// Rows `row` … `last_row` of a sequence. What none of them sees is passed over: slots that aren't written, which may hold
// anything, fresh keys after the last row, and keys before the first row's window.
void attend(uint sequence, uint row, uint last_row, uint head) {
    uint mine = min(row + gl_LocalInvocationID.x, last_row), kv_head = head / SHARING;
    uint at = (mine * HEADS + head) * FOURS;
    [[unroll]] for (uint i = 0u; i < TOGETHER * FOURS; i++) {
        queries[i] = q_at(at + i);
        sums[i] = vec4(0.0);
    }
    [[unroll]] for (uint h = 0u; h < TOGETHER; h++) {
        references[h] = NOTHING;
        totals[h] = 0.0;
    }
    uint index = step[ROW_INDEX + mine], position = step[POSITIONS + mine], reach = 0u, earliest = 0xFFFFFFFFu;
    for (uint r = row; r <= last_row; r++) {
        reach = max(reach, step[ROW_INDEX + r]);
        if (WINDOW > 0u) earliest = min(earliest, step[POSITIONS + r]);
    }
    uint begin = step[PAGE_STARTS + sequence], end = step[PAGE_STARTS + sequence + 1u];
    uint mask = mask_of(sequence), mask_row = MASKED ? mine - step[QUERY_STARTS + sequence] : 0u;
    for (uint entry = begin; entry < end; entry++) {
        uint page = step[PAGES + entry], bits = step[PAGE_BITS + entry], fresh = step[FRESH_BITS + entry];
        uint first = (entry - begin) * PAGE, base = page * KV_HEADS + kv_head;
        if (first > reach && (bits & ~fresh) == 0u) continue;
        uint allowed = mask_bits(mask, mask_row, entry - begin, end - begin);
        for (uint slot = 0u; slot < PAGE; slot++) {
            uint key = first + slot;
            bool new = (fresh >> slot & 1u) == 1u;
            if ((bits >> slot & 1u) == 0u || (new && key > reach)) continue;
            bool visible = (!new || key <= index) && (allowed >> slot & 1u) == 1u;
            if (WINDOW > 0u) {
                int key_position = int(key_positions[page * PAGE + slot]);
                if (int(earliest) - key_position >= int(WINDOW)) continue;
                visible = visible && int(position) - key_position < int(WINDOW);
            }
            attend_key(base * VECTORS * PAGE + slot, (base * PAGE + slot) * VECTORS, visible);
        }
    }
    if (row + gl_LocalInvocationID.x > last_row) return;
    float shares[TOGETHER];
    [[unroll]] for (uint h = 0u; h < TOGETHER; h++)
        shares[h] = share_of(references[h], totals[h], SINKS, SINKS ? sinks[head + h] : 0.0);
    // One loop with constant ends: drivers don't unroll one that begins at another's counter, and then all sums lie in memory.
    [[unroll]] for (uint i = 0u; i < TOGETHER * FOURS; i++) y[at + i] = sums[i] * shares[i / FOURS];
}

void main() {
    uint row = gl_WorkGroupID.x * LOCAL, head = gl_WorkGroupID.y * TOGETHER;
    uint stop = min(row + LOCAL, step[COUNTS]);
    while (row < stop) {
        uint sequence = sequence_of(row), next = step[QUERY_STARTS + sequence + 1u];
        if (next - step[QUERY_STARTS + sequence] > 1u) attend(sequence, row, min(next, stop) - 1u, head);
        row = min(next, stop);
    }
}
