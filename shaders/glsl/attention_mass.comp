#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// How the attention of observed rows is spread over the pages of their sequences: see `attention_mass` in the op table.
//
// A workgroup takes a row, and an invocation every LOCAL-th of its pages, head after head: it scores them once for the largest
// score and the sum of all, and once more for what of that is each page's.
//
// variant: attention_mass_f16 HALVES=1 SUBGROUPS=0
// variant: attention_mass_f16_subgroups HALVES=1 SUBGROUPS=1
// variant: attention_mass_f32 HALVES=0 SUBGROUPS=0
// variant: attention_mass_f32_subgroups HALVES=0 SUBGROUPS=1
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint SHARING = 3u; // query heads of a key-value head
layout(constant_id = 2) const uint KV_HEADS = 3u;
layout(constant_id = 3) const uint WIDTH = 64u;
layout(constant_id = 4) const uint PAGE = 16u;
layout(constant_id = 5) const float SCALE = 0.125;
layout(constant_id = 6) const float SOFTCAP = 0.0;
layout(constant_id = 7) const bool MASKED = false; // some sequence may have a custom mask
layout(constant_id = 8) const bool SINKS = false;  // each head has a score that weighs and adds nothing
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer Q { vec4 q[]; };
layout(set = 0, binding = 1) readonly buffer Keys { uvec4 keys[]; };
layout(set = 0, binding = 2) readonly buffer KeyPositions { uint key_positions[]; };
layout(set = 0, binding = 3) readonly buffer Step { uint step[]; };
layout(set = 0, binding = 4) buffer Y { float y[]; };
layout(set = 0, binding = 5) readonly buffer Sinks { float sinks[]; };
#define OBSERVED
#include "step.glsl"

#include "activations.glsl"
#include "cache.glsl"
#include "reduce.glsl"
#include "sink.glsl"
#include "visibility.glsl"

const uint HEADS = KV_HEADS * SHARING;
const uint VECTORS = WIDTH / PER_VECTOR;
const uint FOURS = WIDTH / 4u;
const uint OF_VECTOR = PER_VECTOR / 4u;
const uint LAYER_WORDS = 8u;
const float NOTHING = -1e30;

shared vec4 query[FOURS];

// The slots of a page entry that the row sees, a bit each.
uint seen(uint sequence, uint row, uint entry) {
    uint begin = step[PAGE_STARTS + sequence], count = step[PAGE_STARTS + sequence + 1u] - begin;
    uint page = step[PAGES + begin + entry], fresh = step[FRESH_BITS + begin + entry];
    uint allowed = mask_bits(mask_of(sequence), row - step[QUERY_STARTS + sequence], entry, count);
    uint bits = step[PAGE_BITS + begin + entry] & allowed, found = 0u;
    for (uint slot = 0u; slot < PAGE; slot++) {
        bool visible = (fresh >> slot & 1u) == 0u || entry * PAGE + slot <= step[ROW_INDEX + row];
        if (WINDOW > 0u)
            visible = visible && int(step[POSITIONS + row]) - int(key_positions[page * PAGE + slot]) < int(WINDOW);
        found |= (visible ? 1u : 0u) << slot;
    }
    return bits & found;
}

float score(uint place) {
    vec4 products = vec4(0.0);
    for (uint v = 0u; v < VECTORS; v++) {
        vec4 a, b;
        unpack_vector(keys[place + v * PAGE], a, b);
        products += a * query[v * OF_VECTOR];
        if (OF_VECTOR == 2u) products += b * query[v * OF_VECTOR + 1u];
    }
    float found = (products.x + products.y + (products.z + products.w)) * SCALE;
    return SOFTCAP > 0.0 ? SOFTCAP * safe_tanh(found / SOFTCAP) : found;
}

// Of a page by one head: the largest score, and the sum of exponentials relative to it.
vec2 weigh(uint sequence, uint row, uint entry, uint kv_head) {
    uint bits = seen(sequence, row, entry), page = step[PAGES + step[PAGE_STARTS + sequence] + entry];
    float peak = NOTHING, total = 0.0;
    for (uint slot = 0u; slot < PAGE; slot++) {
        // What the row doesn't see may hold anything, NaN too: it is never loaded.
        if ((bits >> slot & 1u) == 0u) continue;
        float own = score((page * KV_HEADS + kv_head) * VECTORS * PAGE + slot), joint = max(peak, own);
        total = total * exp(peak - joint) + exp(own - joint);
        peak = joint;
    }
    return vec2(peak, total);
}

void main() {
    uint observed = gl_WorkGroupID.x, lane = gl_LocalInvocationID.x, layers = 0u;
    uint start = step[MASS_STARTS + observed], end = step[MASS_STARTS + observed + 1u];
    if (end <= start) return; // beyond the rows there are
    uint choice = MASS_LAYERS + observed * LAYER_WORDS;
    for (uint i = 0u; i < LAYER_WORDS; i++) layers += uint(bitCount(step[choice + i]));
    for (uint entry = lane; entry < end - start; entry += LOCAL) y[start + entry] = 0.0;
    if ((step[choice + LAYER / 32u] >> LAYER % 32u & 1u) == 0u) return;
    uint row = step[MASS_ROWS + observed], sequence = sequence_of(row);
    float share = 1.0 / float(HEADS * layers);
    for (uint head = 0u; head < HEADS; head++) {
        for (uint i = lane; i < FOURS; i += LOCAL) query[i] = q[(row * HEADS + head) * FOURS + i];
        barrier();
        float peak = NOTHING, total = 0.0;
        for (uint entry = lane; entry < end - start; entry += LOCAL) {
            vec2 page = weigh(sequence, row, entry, head / SHARING);
            float joint = max(peak, page.x);
            total = total * exp(peak - joint) + page.y * exp(page.x - joint);
            peak = joint;
        }
        float top = workgroup_max(peak);
        total = workgroup_sum(total * exp(peak - top));
        float of_total = share_of(top, total, SINKS, SINKS ? sinks[head] : 0.0) * share;
        for (uint entry = lane; total != 0.0 && entry < end - start; entry += LOCAL) {
            vec2 page = weigh(sequence, row, entry, head / SHARING);
            y[start + entry] += page.y * exp(page.x - top) * of_total;
        }
        barrier();
    }
}
