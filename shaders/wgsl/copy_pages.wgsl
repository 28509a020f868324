// Page targets[i] = page sources[i] of a state, for i < counts[0]; pages are so many 16-byte vectors or words.
@group(0) @binding(0) var<storage, read> step: array<u32>;
@group(0) @binding(1) var<storage, read_write> state: array<${T}>;
struct Params {
    sources: u32, // where these begin in the inputs
    targets: u32,
}
@group(1) @binding(0) var<uniform> p: Params;

@compute @workgroup_size(LOCAL)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x + id.z * ${65535 * LOCAL}u;
    if (i < ELEMENTS) {
        state[step[p.targets + id.y] * ELEMENTS + i] = state[step[p.sources + id.y] * ELEMENTS + i];
    }
}
