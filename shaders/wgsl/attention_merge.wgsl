// Join the splits of sequences of one row: each split's sums count by its peak and its total. A split has the WIDTH / 4 vectors
// of its sums, then one with the peak and the total.
@group(0) @binding(0) var<storage, read_write> splits: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> step: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;
#if SINKS
@group(0) @binding(3) var<storage, read> sinks: array<f32>; // each head's
#end
#include step
#include sink

@compute @workgroup_size(LOCAL)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
    let sequence = workgroup.x;
    let head = workgroup.y;
    let row = step[p.query_starts + sequence];
    let entries = step[p.page_starts + sequence];
    let length = (step[p.page_starts + sequence + 1u] - entries) * PAGE;
    if (step[p.query_starts + sequence + 1u] - row != 1u || length <= p.split) { return; }
    let count = (length + p.split - 1u) / p.split;
    let first = ((entries * PAGE / p.split + sequence) * HEADS + head) * ${WIDTH // 4 + 1}u;
    for (var i = local; i < ${WIDTH // 4}u; i += LOCAL) {
        var peak = -1e30;
        var total = 0.0;
        var sum = vec4<f32>(0.0);
        for (var s = 0u; s < count; s++) {
            let at = first + s * HEADS * ${WIDTH // 4 + 1}u;
            let told = splits[at + ${WIDTH // 4}u].xy;
            let joint = max(peak, told.x);
            let old = exp(peak - joint);
            let weight = exp(told.x - joint);
            total = total * old + told.y * weight;
            sum = sum * old + splits[at + i] * weight;
            peak = joint;
        }
        y[(row * HEADS + head) * ${WIDTH // 4}u + i] = sum * share_of(peak, total, head);
    }
}
