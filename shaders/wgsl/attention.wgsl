// Attention of rows over their sequences' pages, with an online softmax (Flash-Decoding, Dao et al., 2023).
//
// A workgroup takes up to ROWS rows of one sequence, the query heads that share a key-value head, and `split` keys of the
// sequence, CHUNK at a time: each invocation scores its own keys for all those queries, then sums its own part of the values.
// Where a sequence has several splits, their sums go to `splits` and attention_merge joins them.
//
// The rows of a tile may belong to several sequences: each is attended to in turn. With singles = 1 only sequences of one row
// are looked at, with 0 only the others, so that decodes and prefills of one step each run in their own shape.
@group(0) @binding(0) var<storage, read_write> q: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> keys: array<Sixteen>;
@group(0) @binding(2) var<storage, read> values: array<Sixteen>;
@group(0) @binding(3) var<storage, read> key_positions: array<u32>;
@group(0) @binding(4) var<storage, read> step: array<u32>;
@group(0) @binding(5) var<storage, read_write> y: array<vec4<f32>>;
#if SPLIT
@group(0) @binding(6) var<storage, read_write> splits: array<vec4<f32>>;
#end

#if SINKS
@group(0) @binding(7) var<storage, read> sinks: array<f32>; // each head's
#end

#include step
#include sink
#include cache
#include reduce

const NOTHING = -1e30;
const NOWHERE = 0xFFFFFFFFu;

var<workgroup> weights: array<vec4<f32>, ${QUADS * CHUNK}>; // of four queries
var<workgroup> places: array<u32, ${CHUNK}>;
#if GROUPS > 1
var<workgroup> joined: array<vec4<f32>, ${LOCAL * 2}>;
#end

@compute @workgroup_size(LOCAL)
#include entry
    let head = workgroup.y;
    let split = workgroup.z;
    let stop = min(workgroup.x * ROWS + ROWS, step[p.counts]);
    var row = workgroup.x * ROWS;
    while (row < stop) {
        let sequence = sequence_of(row);
        let next = step[p.query_starts + sequence + 1u];
        let last_row = min(next, stop) - 1u;
        let entries = step[p.page_starts + sequence];
        let length = (step[p.page_starts + sequence + 1u] - entries) * PAGE;
        let single = next - step[p.query_starts + sequence] == 1u;
        let begin = split * p.split;
        if (single == (p.singles == 1u) && begin < max(length, 1u)) {
            let end = select(min(length, begin + p.split), length, p.split == 0u);
#if MASKED
            let mask = mask_of(sequence);
            let first_row = step[p.query_starts + sequence];
#end
#for i in QUERIES
            var peak_${i} = NOTHING;
            var total_${i} = 0.0;
#for s in STRIPS
            var low_sum_${s}_${i} = vec4<f32>(0.0);
#if HALVES
            var high_sum_${s}_${i} = vec4<f32>(0.0);
#end
#end
#end
#for r in ROWS
            let row_${r} = min(row + ${r}u, last_row);
            let index_${r} = step[p.row_index + row_${r}];
            let position_${r} = step[p.positions + row_${r}];
#end
            for (var chunk = begin; chunk < end; chunk += CHUNK) {
                let chunk_end = min(chunk + CHUNK, end);
#for n in OWN
                var seen_${n} = 0u;
                var base_${n} = 0u;
                {
                    let local_key = ${n * LOCAL}u + local;
                    let key = chunk + local_key;
                    let entry = entries + min(key, chunk_end - 1u) / PAGE;
                    let slot = key % PAGE;
                    let page = step[p.pages + entry];
                    let written = key < chunk_end && ((step[p.page_bits + entry] >> slot) & 1u) == 1u;
                    let fresh = ((step[p.fresh_bits + entry] >> slot) & 1u) == 1u;
                    var key_position = 0u;
                    if (p.window > 0u) { key_position = key_positions[page * PAGE + slot]; }
#for r in ROWS
                    {
                        var visible = written && (!fresh || key <= index_${r});
                        visible = visible && (p.window == 0u || within_window(position_${r}, key_position));
#if MASKED
                        let allowed = mask_bits(mask, row_${r} - first_row, entry - entries, length / PAGE);
                        visible = visible && ((allowed >> slot) & 1u) == 1u;
#end
                        seen_${n} |= select(0u, ${1 << r}u, visible);
                    }
#end
                    base_${n} = (page * ${KV_HEADS}u + head) * ${VECTORS}u * PAGE + slot;
                    // What no row sees may hold anything, NaN too: it is never loaded.
                    let place = ((page * ${KV_HEADS}u + head) * PAGE + slot) * ${VECTORS}u;
                    places[local_key] = select(NOWHERE, place, seen_${n} != 0u);
                }
#end
#for n in OWN
#for i in QUERIES
                var score_${n}_${i} = 0.0;
#end
#end
                for (var v = 0u; v < ${VECTORS}u; v++) {
#for i in QUERIES
                    let at_${i} = ((row_${i // SHARING} * HEADS + head * SHARING + ${i % SHARING}u) * WIDTH + v * ${PER_VECTOR}u) / 4u;
                    let low_${i} = q[at_${i}];
#if HALVES
                    let high_${i} = q[at_${i} + 1u];
#end
#end
#for n in OWN
                    {
                        let key = keys[base_${n} + v * PAGE];
                        let low = low_of(key);
#if HALVES
                        let high = high_of(key);
#end
#for i in QUERIES
                        {
#if HALVES
                            let products = low * low_${i} + high * high_${i};
#else
                            let products = low * low_${i};
#end
                            score_${n}_${i} += (products.x + products.y) + (products.z + products.w);
                        }
#end
                    }
#end
                }
#for i in QUERIES
                {
                    var peak = NOTHING;
#for n in OWN
                    score_${n}_${i} = select(NOTHING, capped(score_${n}_${i} * SCALE), ((seen_${n} >> ${i // SHARING}u) & 1u) == 1u);
                    peak = max(peak, score_${n}_${i});
#end
                    peak = max(workgroup_max(peak, lanes, subgroups), peak_${i});
                    let shrink = exp(peak_${i} - peak);
                    peak_${i} = peak;
                    total_${i} *= shrink;
#for n in OWN
                    score_${n}_${i} = select(0.0, exp(score_${n}_${i} - peak), score_${n}_${i} > NOTHING);
                    total_${i} += score_${n}_${i};
#end
#for s in STRIPS
                    low_sum_${s}_${i} *= shrink;
#if HALVES
                    high_sum_${s}_${i} *= shrink;
#end
#end
                }
#end
#for n in OWN
#for w in QUADS
                weights[${w * CHUNK + n * LOCAL}u + local] = vec4<f32>(${", ".join(f"score_{n}_{w * 4 + c}" if w * 4 + c < QUERIES else "0.0" for c in range(4))});
#end
#end
                workgroupBarrier();
                let across = local % ${ACROSS}u;
                for (var key = local / ${ACROSS}u; key < chunk_end - chunk; key += ${GROUPS}u) {
                    let place = places[key];
                    if (place != NOWHERE) {
#for w in QUADS
                        let four_${w} = weights[${w * CHUNK}u + key];
#end
#for s in STRIPS
                        {
                            let value = values[place + across + ${s * ACROSS}u];
                            let low = low_of(value);
#if HALVES
                            let high = high_of(value);
#end
#for i in QUERIES
                            low_sum_${s}_${i} += four_${i // 4}[${i % 4}] * low;
#if HALVES
                            high_sum_${s}_${i} += four_${i // 4}[${i % 4}] * high;
#end
#end
                        }
#end
                    }
                }
                workgroupBarrier();
            }
            let whole = p.split == 0u || length <= p.split;
#for i in QUERIES
            {
                let total = workgroup_sum(total_${i}, lanes, subgroups);
                let query = head * SHARING + ${i % SHARING}u;
                let share = share_of(peak_${i}, total, query);
#if SPLIT
                let split_place = (entries * PAGE / max(p.split, 1u) + sequence + split) * HEADS + query;
                let split_at = split_place * ${WIDTH // 4 + 1}u;
#end
                let at = ((row + ${i // SHARING}u) * HEADS + query) * ${WIDTH // 4}u;
#for s in STRIPS
#if GROUPS > 1
                joined[2u * local] = low_sum_${s}_${i};
#if HALVES
                joined[2u * local + 1u] = high_sum_${s}_${i};
#end
                workgroupBarrier();
                if (local < ${ACROSS}u) {
                    for (var g = 1u; g < ${GROUPS}u; g++) {
                        low_sum_${s}_${i} += joined[2u * (g * ${ACROSS}u + local)];
#if HALVES
                        high_sum_${s}_${i} += joined[2u * (g * ${ACROSS}u + local) + 1u];
#end
                    }
                }
                workgroupBarrier();
#end
                if (local < ${ACROSS}u && row + ${i // SHARING}u <= last_row) {
                    let column = (${s * ACROSS}u + local) * ${PER_VECTOR // 4}u;
                    if (whole) {
                        y[at + column] = low_sum_${s}_${i} * share;
#if HALVES
                        y[at + column + 1u] = high_sum_${s}_${i} * share;
#end
                    }
#if SPLIT
                    else {
                        splits[split_at + column] = low_sum_${s}_${i};
#if HALVES
                        splits[split_at + column + 1u] = high_sum_${s}_${i};
#end
                    }
#end
                }
#end
#if SPLIT
                if (!whole && local == 0u) { splits[split_at + ${WIDTH // 4}u] = vec4<f32>(peak_${i}, total, 0.0, 0.0); }
#end
            }
#end
        }
        row = last_row + 1u;
    }
}
