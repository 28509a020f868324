// Truth values, a word each, as bytes.
struct Params {
    x_start: u32,
    y_start: u32,
    entries: u32,
    zero: u32,
}
@group(1) @binding(0) var<uniform> p: Params;
#include memories

@compute @workgroup_size(LOCAL)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>) {
    for (var w = id.x; w < (p.entries + 3u) / 4u; w += workgroups.x * LOCAL) {
        var word = 0u;
        for (var i = w * 4u; i < min(w * 4u + 4u, p.entries); i++) {
            word |= select(0u, 1u, arena[p.x_start + i] != 0u) << (8u * (i % 4u));
        }
        outputs[p.y_start + w] = word;
    }
}
