// Each of a row's equal groups divided by its root mean square, times (weight + offset); with ADD of x + residual, which is
// written too. A workgroup takes a group.
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
#if ADD
@group(0) @binding(3) var<storage, read_write> residual: array<f32>;
@group(0) @binding(4) var<storage, read_write> total: array<f32>;
#end

#include reduce

fn value_at(i: u32) -> f32 {
#if ADD
    return x[i] + residual[i];
#else
    return x[i];
#end
}

@compute @workgroup_size(LOCAL)
#include entry
    let base = (workgroup.y * workgroups.x + workgroup.x) * WIDTH;
    var squares = 0.0;
    for (var i = local; i < WIDTH; i += LOCAL) {
        let value = value_at(base + i);
#if ADD
        total[base + i] = value;
#end
        squares += value * value;
    }
    let inverse = 1.0 / sqrt(workgroup_sum(squares, lanes, subgroups) / ${WIDTH}.0 + EPS);
    for (var i = local; i < WIDTH; i += LOCAL) {
        y[base + i] = value_at(base + i) * inverse * (weight[i] + OFFSET);
    }
}
