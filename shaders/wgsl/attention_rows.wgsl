// Attention of sequences with several rows, a row an invocation: its queries and sums stay in registers, and there is neither
// shared memory nor any barrier. For narrow heads; see attention.wgsl for the others.
//
// A workgroup takes LOCAL rows and TOGETHER query heads of one key-value head, and goes from key to key. The largest score so
// far isn't kept exactly: sums are only rescaled when a score exceeds the reference by so much that its exponential would
// grow out of hand.
@group(0) @binding(0) var<storage, read_write> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> keys: array<Sixteen>;
@group(0) @binding(2) var<storage, read> values: array<Sixteen>;
@group(0) @binding(3) var<storage, read> key_positions: array<u32>;
@group(0) @binding(4) var<storage, read> step: array<u32>;
@group(0) @binding(5) var<storage, read_write> y: array<vec4<f32>>;

#if SINKS
@group(0) @binding(6) var<storage, read> sinks: array<f32>; // each head's
#end

#include step
#include sink
#include cache

const NOTHING = -1e30;
const MARGIN = 12.0;

@compute @workgroup_size(LOCAL)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let head = workgroup.y * ${TOGETHER}u;
    let kv_head = head / SHARING;
    let stop = min(workgroup.x * LOCAL + LOCAL, step[p.counts]);
    var row = workgroup.x * LOCAL;
    while (row < stop) {
        let sequence = sequence_of(row);
        let next = step[p.query_starts + sequence + 1u];
        let last_row = min(next, stop) - 1u;
        if (next - step[p.query_starts + sequence] > 1u) {
            // Rows `row` … `last_row` of a sequence. What none of them sees is passed over: slots that aren't written, which
            // may hold anything, fresh keys after the last row, and keys before the first row's window.
            let mine = min(row + local, last_row);
            let at = (mine * HEADS + head) * ${FOURS}u;
#for h in TOGETHER
            var reference_${h} = NOTHING;
            var total_${h} = 0.0;
#for i in FOURS
            let query_${h}_${i} = q[at + ${h * FOURS + i}u];
            var sum_${h}_${i} = vec4<f32>(0.0);
#end
#end
            let index = step[p.row_index + mine];
            let position = step[p.positions + mine];
            var reach = 0u;
            var earliest = 0x7FFFFFFFu;
            for (var r = row; r <= last_row; r++) {
                reach = max(reach, step[p.row_index + r]);
                earliest = min(earliest, step[p.positions + r]);
            }
            let begin = step[p.page_starts + sequence];
            let end = step[p.page_starts + sequence + 1u];
#if MASKED
            let mask = mask_of(sequence);
            let mask_row = mine - step[p.query_starts + sequence];
#end
            for (var entry = begin; entry < end; entry++) {
                let page = step[p.pages + entry];
                let bits = step[p.page_bits + entry];
                let fresh = step[p.fresh_bits + entry];
                let first = (entry - begin) * PAGE;
                let base = page * ${KV_HEADS}u + kv_head;
                if (first > reach && (bits & ~fresh) == 0u) { continue; }
#if MASKED
                let allowed = mask_bits(mask, mask_row, entry - begin, end - begin);
#end
                for (var slot = 0u; slot < PAGE; slot++) {
                    let key = first + slot;
                    let is_new = ((fresh >> slot) & 1u) == 1u;
                    if (((bits >> slot) & 1u) == 0u || (is_new && key > reach)) { continue; }
                    var visible = !is_new || key <= index;
#if MASKED
                    visible = visible && ((allowed >> slot) & 1u) == 1u;
#end
                    if (p.window > 0u) {
                        let key_position = key_positions[page * PAGE + slot];
                        if (!within_window(earliest, key_position)) { continue; }
                        visible = visible && within_window(position, key_position);
                    }
                    let place = base * ${VECTORS}u * PAGE + slot;
                    let value_place = (base * PAGE + slot) * ${VECTORS}u;
#for h in TOGETHER
                    var score_${h} = 0.0;
#end
#for v in VECTORS
                    {
                        let found = keys[place + ${v}u * PAGE];
                        let low = low_of(found);
#if HALVES
                        let high = high_of(found);
#end
#for h in TOGETHER
                        {
#if HALVES
                            let products = low * query_${h}_${2 * v} + high * query_${h}_${2 * v + 1};
#else
                            let products = low * query_${h}_${v};
#end
                            score_${h} += (products.x + products.y) + (products.z + products.w);
                        }
#end
                    }
#end
                    var grown = false;
#for h in TOGETHER
                    score_${h} = select(NOTHING, capped(score_${h} * SCALE), visible);
                    grown = grown || score_${h} > reference_${h} + MARGIN;
#end
                    if (grown) {
#for h in TOGETHER
                        {
                            let reference = max(reference_${h}, score_${h});
                            let shrink = exp(reference_${h} - reference);
                            reference_${h} = reference;
                            total_${h} *= shrink;
#for i in FOURS
                            sum_${h}_${i} *= shrink;
#end
                        }
#end
                    }
#for h in TOGETHER
                    score_${h} = select(0.0, exp(score_${h} - reference_${h}), visible);
                    total_${h} += score_${h};
#end
#for v in VECTORS
                    {
                        let found = values[value_place + ${v}u];
                        let low = low_of(found);
#if HALVES
                        let high = high_of(found);
#end
#for h in TOGETHER
#if HALVES
                        sum_${h}_${2 * v} += score_${h} * low;
                        sum_${h}_${2 * v + 1} += score_${h} * high;
#else
                        sum_${h}_${v} += score_${h} * low;
#end
#end
                    }
#end
                }
            }
            if (row + local <= last_row) {
#for h in TOGETHER
                let share_${h} = share_of(reference_${h}, total_${h}, head + ${h}u);
#for i in FOURS
                y[at + ${h * FOURS + i}u] = sum_${h}_${i} * share_${h};
#end
#end
            }
        }
        row = last_row + 1u;
    }
}
