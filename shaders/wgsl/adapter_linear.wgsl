// y[t, rows] = matrices[n − 1] · x[t], n = adapters[t], added to base, if there is one; nothing where n = 0. Down to a low rank a
// workgroup sums over a row of the matrix (WIDE); up from it an invocation does.
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> matrices: array<f32>;
@group(0) @binding(2) var<storage, read> step: array<u32>;
#if BASE
@group(0) @binding(3) var<storage, read_write> base: array<f32>;
#end
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
struct Params {
    adapters: u32, // where they begin in the step
}
@group(1) @binding(0) var<uniform> p: Params;

#include reduce

@compute @workgroup_size(LOCAL)
#include entry
    let token = workgroup.y;
    let number = step[p.adapters + token];
#if WIDE
    let output = workgroup.x;
    let first = local;
    let stride = LOCAL;
#else
    let output = workgroup.x * LOCAL + local;
    let first = 0u;
    let stride = 1u;
    if (output >= OUTPUTS) { return; }
#end
    var sum = 0.0;
    if (number > 0u) {
        let row = ((number - 1u) * OUTPUTS + output) * COLUMNS;
        for (var i = first; i < COLUMNS; i += stride) { sum += matrices[row + i] * x[token * COLUMNS + i]; }
    }
#if WIDE
    sum = workgroup_sum(sum, lanes, subgroups);
    if (local > 0u) { return; }
#end
    let at = token * OUTPUTS + output;
#if BASE
    y[at] = base[at] + sum;
#else
    y[at] = sum;
#end
}
