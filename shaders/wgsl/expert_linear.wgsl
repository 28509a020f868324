// y of each row and each of its experts: x · the expert's matrixᵀ, dequantised in registers as in linear.wgsl.
//
// The experts' matrices lie one below another, and a part of them may be bound: a workgroup takes NR row groups that have rows
// of its expert, of which the first and the last may have others' too. Alone (M = 1) a workgroup takes one row and one of its
// experts; else up to M rows of one expert, in tiles that `order` and `starts` tell: a weight is then decoded once for all.
@group(0) @binding(0) var<storage, read> codes: array<Codes>;
#if AFFINE
@group(0) @binding(1) var<storage, read> scales: array<Scales>;
#end
@group(0) @binding(2) var<storage, read_write> x: array<vec4<f32>>;
#if BIAS
@group(0) @binding(3) var<storage, read> bias: array<f32>;
#end
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(0) @binding(5) var<storage, read_write> experts: array<u32>;
#if M > 1
@group(0) @binding(6) var<storage, read_write> order: array<u32>;
@group(0) @binding(7) var<storage, read_write> starts: array<u32>;
#end
struct Params {
    scales_from: u32, // in words
    part_first: u32, // the first of all experts' rows that is bound
    part_rows: u32,
    zero: f32,
}
@group(1) @binding(0) var<uniform> p: Params;

#include weights
#include operand

#if KS > 1
#include agreed
#end

@compute @workgroup_size(${RI * KS})
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
#if M == 1
    let place_0 = workgroup.y * CHOSEN + workgroup.z;
    let found = experts[place_0];
    let count = 1u;
#else
    var tile = workgroup.y;
    var found = 0u;
    for (; found < EXPERTS; found++) {
        let tiles = (starts[found + 1u] - starts[found] + ${M - 1}u) / M;
        if (tile < tiles) { break; }
        tile -= tiles;
    }
#end
#if KS > 1
    let expert = agreed(found, local == 0u);
#else
    let expert = found;
#end
#if M > 1
    if (expert == EXPERTS) { return; }
    let first = starts[expert] + tile * M;
    let count = min(starts[expert + 1u] - first, M);
#for m in M
    let place_${m} = order[first + min(${m}u, count - 1u)];
#end
#end
    let begin = max(expert * ROWS, p.part_first);
    let end = min((expert + 1u) * ROWS, p.part_first + p.part_rows);
    if (begin >= end) { return; }
    let first_group = (begin - p.part_first) / RI + workgroup.x * NR;
    let last = (end - 1u - p.part_first) / RI;
    if (first_group > last) { return; }
    let zero0 = p.zero;
#if KS > 1
    let lane = local % RI;
    let share = local / RI;
#else
    let lane = local;
    let share = 0u;
#end
#for i in NR
    let row_group_${i} = min(first_group + ${i}u, last);
    let code_0_${i} = row_group_${i} * ${BLOCKS * VECTORS * RI}u + lane;
#if AFFINE
    let scale_0_${i} = p.scales_from + row_group_${i} * ${ROW_WORDS * RI}u + lane;
#end
#end
#include products
#for i in NR
    {
        let row = p.part_first + (first_group + ${i}u) * RI + lane;
        if (row >= begin && row < end) {
#for m in M
            if (${m}u < count) {
#if BIAS
                y[place_${m} * ROWS + row - expert * ROWS] = sum_0_${i}_${m} + bias[row];
#else
                y[place_${m} * ROWS + row - expert * ROWS] = sum_0_${i}_${m};
#end
            }
#end
        }
    }
#end
}
