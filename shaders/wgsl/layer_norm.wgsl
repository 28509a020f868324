// A row less its mean, divided by its standard deviation, times weight (+ bias). A workgroup takes a row.
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
#if BIAS
@group(0) @binding(2) var<storage, read> bias: array<f32>;
#end
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

#include reduce

@compute @workgroup_size(LOCAL)
#include entry
    let base = workgroup.y * WIDTH;
    var sum = 0.0;
    var squares = 0.0;
    for (var i = local; i < WIDTH; i += LOCAL) { sum += x[base + i]; }
    let mean = workgroup_sum(sum, lanes, subgroups) / ${WIDTH}.0;
    for (var i = local; i < WIDTH; i += LOCAL) {
        let centred = x[base + i] - mean;
        squares += centred * centred;
    }
    let inverse = 1.0 / sqrt(workgroup_sum(squares, lanes, subgroups) / ${WIDTH}.0 + EPS);
    for (var i = local; i < WIDTH; i += LOCAL) {
#if BIAS
        y[base + i] = (x[base + i] - mean) * inverse * weight[i] + bias[i];
#else
        y[base + i] = (x[base + i] - mean) * inverse * weight[i];
#end
    }
}
