// y[t,c] = act(Σ_j weight[c,W−1−j] · x(n−j, c) + bias[c]), x(m) being a row of the step or, before those, of the tail. An
// invocation takes a column of a row.
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> codes: array<Codes>;
@group(0) @binding(2) var<storage, read> tail: array<f32>;
#if BIAS
@group(0) @binding(3) var<storage, read> bias: array<f32>;
#end
@group(0) @binding(4) var<storage, read> step: array<u32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;

#include recurrent
#include weights
#if ACT
#include activations
#end

@compute @workgroup_size(LOCAL)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let column = id.x + id.z * ${65535 * LOCAL}u;
    let row = id.y;
    if (column >= WIDTH) { return; }
    let s = sequence_at(sequence_of(row));
    let place = row - s.first;
#if BIAS
    var sum = bias[column];
#else
    var sum = 0.0;
#end
#for fourth in (COLUMNS + 3) // 4
    {
        let at = ((column / RI * ${BLOCKS}u + ${fourth // 8}u) * ${VECTORS}u + ${fourth % 8 // PARTS}u) * RI + column % RI;
        let weights = part(codes[at], vec2<u32>(0u), ${fourth % PARTS}u);
#for i in min(4, COLUMNS - fourth * 4)
        {
            let back = ${COLUMNS - 1 - fourth * 4 - i}u; // places before this row
            if (back <= place) {
                sum += weights[${i}] * x[(row - back) * WIDTH + column];
            } else if (back - place <= s.start) {
                sum += weights[${i}] * tail[tail_row(s, back - place) * WIDTH + column];
            }
        }
#end
    }
#end
#if ACT
    y[row * WIDTH + column] = activate(sum);
#else
    y[row * WIDTH + column] = sum;
#end
}
