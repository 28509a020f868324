// How the attention of observed rows is spread over the pages of their sequences: see `attention_mass` in the op table.
//
// A workgroup takes a row, and an invocation every LOCAL-th of its pages, head after head: it scores them once for the largest
// score and the sum of all, and once more for what of that is each page's.
@group(0) @binding(0) var<storage, read_write> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> keys: array<Sixteen>;
@group(0) @binding(2) var<storage, read> key_positions: array<u32>;
@group(0) @binding(3) var<storage, read> step: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

#if SINKS
@group(0) @binding(5) var<storage, read> sinks: array<f32>; // each head's
#end

#include step
#include sink
#include cache
#include reduce

const NOTHING = -1e30;
const LAYER_WORDS = 8u;

var<workgroup> query: array<vec4<f32>, ${FOURS}>;

// The slots of a page entry that the row sees, a bit each.
fn seen(sequence: u32, row: u32, entry: u32) -> u32 {
    let begin = step[p.page_starts + sequence];
    let page = step[p.pages + begin + entry];
    let fresh = step[p.fresh_bits + begin + entry];
    var bits = step[p.page_bits + begin + entry];
#if MASKED
    let count = step[p.page_starts + sequence + 1u] - begin;
    bits &= mask_bits(mask_of(sequence), row - step[p.query_starts + sequence], entry, count);
#end
    var found = 0u;
    for (var slot = 0u; slot < PAGE; slot++) {
        var visible = ((fresh >> slot) & 1u) == 0u || entry * PAGE + slot <= step[p.row_index + row];
        if (p.window > 0u) {
            visible = visible && within_window(step[p.positions + row], key_positions[page * PAGE + slot]);
        }
        found |= select(0u, 1u, visible) << slot;
    }
    return bits & found;
}

fn score(place: u32) -> f32 {
    var products = vec4<f32>(0.0);
    for (var v = 0u; v < ${VECTORS}u; v++) {
        let found = keys[place + v * PAGE];
        products += low_of(found) * query[v * ${PER_VECTOR // 4}u];
#if HALVES
        products += high_of(found) * query[v * 2u + 1u];
#end
    }
    return capped((products.x + products.y + (products.z + products.w)) * SCALE);
}

// Of a page by one head: the largest score, and the sum of exponentials relative to it.
fn weigh(sequence: u32, row: u32, entry: u32, kv_head: u32) -> vec2<f32> {
    let bits = seen(sequence, row, entry);
    let page = step[p.pages + step[p.page_starts + sequence] + entry];
    var peak = NOTHING;
    var total = 0.0;
    for (var slot = 0u; slot < PAGE; slot++) {
        // What the row doesn't see may hold anything, NaN too: it is never loaded.
        if (((bits >> slot) & 1u) == 0u) { continue; }
        let own = score((page * ${KV_HEADS}u + kv_head) * ${VECTORS}u * PAGE + slot);
        let joint = max(peak, own);
        total = total * exp(peak - joint) + exp(own - joint);
        peak = joint;
    }
    return vec2<f32>(peak, total);
}

@compute @workgroup_size(LOCAL)
#include entry
    let observed = workgroup.x;
    let start = step[p.mass_starts + observed];
    let end = step[p.mass_starts + observed + 1u];
    if (end <= start) { return; } // beyond the rows there are
    let choice = p.mass_layers + observed * LAYER_WORDS;
    var layers = 0u;
    for (var i = 0u; i < LAYER_WORDS; i++) { layers += countOneBits(step[choice + i]); }
    for (var entry = local; entry < end - start; entry += LOCAL) { y[start + entry] = 0.0; }
    if (((step[choice + p.layer / 32u] >> (p.layer % 32u)) & 1u) == 0u) { return; }
    let row = step[p.mass_rows + observed];
    let sequence = sequence_of(row);
    let share = 1.0 / f32(HEADS * layers);
    for (var head = 0u; head < HEADS; head++) {
        for (var i = local; i < ${FOURS}u; i += LOCAL) { query[i] = q[(row * HEADS + head) * ${FOURS}u + i]; }
        workgroupBarrier();
        var peak = NOTHING;
        var total = 0.0;
        for (var entry = local; entry < end - start; entry += LOCAL) {
            let page = weigh(sequence, row, entry, head / SHARING);
            let joint = max(peak, page.x);
            total = total * exp(peak - joint) + page.y * exp(page.x - joint);
            peak = joint;
        }
        let top = workgroup_max(peak, lanes, subgroups);
        total = workgroup_sum(total * exp(peak - top), lanes, subgroups);
        let of_total = share_of(top, total, head) * share;
        for (var entry = local; total != 0.0 && entry < end - start; entry += LOCAL) {
            let page = weigh(sequence, row, entry, head / SHARING);
            y[start + entry] += page.y * exp(page.x - top) * of_total;
        }
        workgroupBarrier();
    }
}
