// y[r, ·] = x[rows[r], ·], in vectors of four or in words.
@group(0) @binding(0) var<storage, read_write> x: array<${T}>;
@group(0) @binding(1) var<storage, read> step: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<${T}>;
struct Params {
    rows: u32, // where they begin in the step
}
@group(1) @binding(0) var<uniform> p: Params;

@compute @workgroup_size(LOCAL)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x + id.z * ${65535 * LOCAL}u;
    if (i < ELEMENTS) { y[id.y * ELEMENTS + i] = x[step[p.rows + id.y] * ELEMENTS + i]; }
}
