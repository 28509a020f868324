// Each row's CHOSEN experts of the largest logits, in falling order, and what they weigh. An invocation finds the ranks of every
// LOCAL-th expert by counting, over keys that order numbers which are none as well: there are always CHOSEN different ones.
@group(0) @binding(0) var<storage, read_write> logits: array<f32>;
@group(0) @binding(1) var<storage, read_write> experts: array<u32>;
@group(0) @binding(2) var<storage, read_write> weights: array<f32>;
struct Params {
    zero: u32,
}
@group(1) @binding(0) var<uniform> p: Params;

#include exact
#include exp
#include keys
#include reduce

var<workgroup> ranked: array<u32, ${EXPERTS}>;

fn rank_of(expert: u32) -> u32 {
    var rank = 0u;
    let key = ranked[expert];
    for (var other = 0u; other < EXPERTS; other++) {
        if (ranked[other] > key || (ranked[other] == key && other < expert)) { rank++; }
    }
    return rank;
}

@compute @workgroup_size(LOCAL)
#include entry
    let base = workgroup.y * EXPERTS;
    var largest = -3.402823e38;
    var total = 0.0;
    for (var i = local; i < EXPERTS; i += LOCAL) {
        ranked[i] = key_of(bitcast<u32>(logits[base + i]), F32_);
        largest = max(largest, logits[base + i]);
    }
    largest = workgroup_max(largest, lanes, subgroups);
    workgroupBarrier();
    for (var i = local; i < EXPERTS; i += LOCAL) {
#if NORMALISED
        if (rank_of(i) < CHOSEN) { total += exp_below(logits[base + i] - largest); }
#else
        total += exp_below(logits[base + i] - largest);
#end
    }
    total = workgroup_sum(total, lanes, subgroups);
    for (var i = local; i < EXPERTS; i += LOCAL) {
        let rank = rank_of(i);
        if (rank < CHOSEN) {
            experts[workgroup.y * CHOSEN + rank] = i;
            weights[workgroup.y * CHOSEN + rank] = exp_below(logits[base + i] - largest) / total * SCALE;
        }
    }
}
