// What the gated delta rule keeps of a head's matrix and learns anew, for each token that gated_delta.wgsl runs: of the step's
// own rows, then of those that each sequence runs again, LENGTH at most. An invocation takes a token's head.
@group(0) @binding(0) var<storage, read_write> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> b: array<f32>;
@group(0) @binding(2) var<storage, read> a_tail: array<f32>;
@group(0) @binding(3) var<storage, read> b_tail: array<f32>;
@group(0) @binding(4) var<storage, read> gates: array<f32>; // rate of each head, then dt_bias
@group(0) @binding(5) var<storage, read> step: array<u32>;
@group(0) @binding(6) var<storage, read_write> found: array<vec2<f32>>;

#include recurrent
#include exact
#include exp

// ln(1 + e^x) as max(x, 0) + ln(1 + t), t = e^−|x|; ln(1 + t) = 2 artanh(t / (2 + t)), a series that ends soon.
fn softplus(x: f32) -> f32 {
    let t = exp_below(-abs(x));
    let z = t / (2.0 + t);
    let zz = z * z;
    var sum = ${1 / 15};
#for n in (13, 11, 9, 7, 5, 3, 1)
    sum = sum * zz + ${1 / n};
#end
    return max(x, 0.0) + 2.0 * z * sum;
}

fn gate(head: u32, decay: f32, learning: f32) -> vec2<f32> {
    let keep = exp_below(gates[head] * softplus(decay + gates[HEADS + head]));
    return vec2<f32>(keep, 1.0 / (1.0 + exp(-learning)));
}

@compute @workgroup_size(LOCAL)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let head = id.x;
    let s = sequence_at(id.z);
    if (head >= HEADS || id.y >= s.replayed + s.rows) { return; }
    if (id.y < s.replayed) {
        let at = tail_row(s, s.replayed - id.y) * HEADS + head;
        found[(ROOM + id.z * LENGTH + id.y) * HEADS + head] = gate(head, a_tail[at], b_tail[at]);
    } else {
        let at = (s.first + id.y - s.replayed) * HEADS + head;
        found[at] = gate(head, a[at], b[at]);
    }
}
