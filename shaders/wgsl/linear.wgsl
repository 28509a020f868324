// y[T, rows] = x[T, columns] · weightᵀ, dequantised in registers.
//
// An invocation computes NR row groups for M tokens: a weight is decoded once for M products, and a load of x serves NR rows.
// KS invocations share the columns of a row and add up at the end. Up to three matrices of one layout (queries, keys and
// values) run in one launch; with ACT two are a gate and what it lets through, y = act(gate) · up. With NORM x is divided by
// its root mean square and multiplied by a vector first, which every workgroup does for itself: the squares are summed
// beside the products. With RESIDUAL another value is added last.
@group(0) @binding(0) var<storage, read> codes: array<Codes>;
#if AFFINE
@group(0) @binding(1) var<storage, read> scales: array<Scales>;
#end
#if UNIFORM
@group(0) @binding(2) var<uniform> x: array<vec4<f32>, ${UNIFORM}>;
#else
@group(0) @binding(2) var<storage, read_write> x: array<vec4<f32>>;
#end
#if NORM
@group(0) @binding(3) var<storage, read> norm: array<vec4<f32>>;
#end
#if BIAS
@group(0) @binding(4) var<storage, read> bias: array<f32>;
#end
#if RESIDUAL
@group(0) @binding(5) var<storage, ${"read" if RESIDUAL == "beside x" else "read_write"}> residual: array<f32>;
#end
#for i in OUTPUTS
@group(0) @binding(${6 + i}) var<storage, read_write> y${i}: array<f32>;
#end
#if COUNTED
@group(0) @binding(9) var<uniform> counts: vec4<u32>;
#end
// Of each matrix: where its codes (vec4s) and scales (words) begin, its rows, the workgroups up to its end, the code that stands
// for zero, and where its bias begins.
struct Params {
#for i in 3
    codes${i}: u32,
    scales${i}: u32,
    rows${i}: u32,
    end${i}: u32,
    zero${i}: f32,
    bias${i}: u32,
#end
    width: u32, // values of a row of y; 0 for as many as the matrix has rows
    place: u32, // where the matrix's rows begin in a row of y
    first: u32, // rows of x before those that are bound
    room: u32, // rows of y that are bound
}
@group(1) @binding(0) var<uniform> p: Params;

#include weights
#if ACT
#include activations
#end

#include operand

@compute @workgroup_size(${RI * KS})
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    let group = workgroup.x + workgroup.y * workgroups.x;
    var before = 0u;
    var rows = p.rows0;
    var codes_from0 = p.codes0;
    var scales_from0 = p.scales0;
    var zero0 = p.zero0;
    var bias_from = p.bias0;
#if OUTPUTS > 1
    var end = p.end0;
    var which = 0u;
#for i in OUTPUTS - 1
    if (group >= p.end${i}) {
        which = ${i + 1}u;
        before = p.end${i};
        end = p.end${i + 1};
        rows = p.rows${i + 1};
        codes_from0 = p.codes${i + 1};
        scales_from0 = p.scales${i + 1};
        zero0 = p.zero${i + 1};
        bias_from = p.bias${i + 1};
    }
#end
    if (group >= end) { return; }
#else
    if (group >= p.end0) { return; }
#end
#if ACT
    let codes_from1 = p.codes1;
    let scales_from1 = p.scales1;
    let zero1 = p.zero1;
#end
    let group_in_matrix = (group - before) * NR;
    let last = (rows + RI - 1u) / RI - 1u;
#if KS > 1
    let lane = local % RI;
    let share = local / RI;
#else
    // A constant: the loop is then seen to be the same for all, and with it what it loads of x.
    let lane = local;
    let share = 0u;
#end
    let token = workgroup.z * M;
#for s in SIDES
#for i in NR
    let row_group_${s}_${i} = min(group_in_matrix + ${i}u, last);
    let code_${s}_${i} = codes_from${s} + row_group_${s}_${i} * ${BLOCKS * VECTORS * RI}u + lane;
#if AFFINE
    let scale_${s}_${i} = scales_from${s} + row_group_${s}_${i} * ${ROW_WORDS * RI}u + lane;
#end
#end
#end
#include products
#if NORM
#for m in M
    let inverse_${m} = 1.0 / sqrt(square_${m} / ${COLUMNS}.0 + EPS);
#end
#end
#if COUNTED
    let tokens = min(p.room, max(counts[COUNTER], p.first) - p.first);
#else
    let tokens = p.room;
#end
    let width = select(p.width, rows, p.width == 0u);
#for i in NR
    {
        let row = (group_in_matrix + ${i}u) * RI + lane;
#for m in M
        if (row < rows && token + ${m}u < tokens) {
            let at = (token + ${m}u) * width + p.place + row;
            var value = sum_0_${i}_${m};
#if NORM
            value *= inverse_${m};
#end
#if ACT and NORM
            value = activate(value) * (sum_1_${i}_${m} * inverse_${m});
#elif ACT
            value = activate(value) * sum_1_${i}_${m};
#end
#if BIAS
            value += bias[bias_from + row];
#end
#if RESIDUAL
            value += residual[at];
#end
#if OUTPUTS == 1
            y0[at] = value;
#else
            if (which == 0u) { y0[at] = value; }
#for o in OUTPUTS - 1
            if (which == ${o + 1}u) { y${o + 1}[at] = value; }
#end
#end
        }
#end
    }
#end
}
