// Rotary positions (RoFormer, arXiv:2104.09864): turn pairs of each head's first ROTARY values; the others are copied. An
// invocation takes a pair, or two values that stay.
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read> step: array<u32>;
@group(0) @binding(2) var<uniform> frequencies: array<vec4<u32>, ${(ROTARY + 3) // 4}>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
struct Params {
    positions: u32, // where they begin in the step
}
@group(1) @binding(0) var<uniform> p: Params;

#include turns

@compute @workgroup_size(LOCAL)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x + id.z * ${65535 * LOCAL}u;
    let token = id.y;
    let head = i / ${WIDTH // 2}u;
    let pair = i % ${WIDTH // 2}u;
    if (head >= HEADS) { return; }
    let base = (token * HEADS + head) * WIDTH;
    if (pair >= ${ROTARY // 2}u) {
        y[base + 2u * pair] = x[base + 2u * pair];
        y[base + 2u * pair + 1u] = x[base + 2u * pair + 1u];
        return;
    }
#if NEOX
    let a = base + pair;
    let b = a + ${ROTARY // 2}u;
#else
    let a = base + 2u * pair;
    let b = a + 1u;
#end
    let turn = MAGNITUDE * cos_sin_of_turns(step[p.positions + token], frequency_of(pair));
    y[a] = x[a] * turn.x - x[b] * turn.y;
    y[b] = x[a] * turn.y + x[b] * turn.x;
}
