// What lies in each entry's slot of the engine's tokens, in place of what the passes gave; a slot past the end leaves that.
@group(0) @binding(0) var<storage, read_write> inputs: array<u32>;
@group(0) @binding(1) var<storage, read> tokens: array<u32>;
struct Params {
    given: u32, // where these begin in the inputs
    slots: u32,
    room: u32,
    each: u32, // entries of a pass
}
@group(1) @binding(0) var<uniform> p: Params;

@compute @workgroup_size(LOCAL)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < inputs[COUNTS] * p.each && inputs[p.slots + id.x] < p.room) {
        inputs[p.given + id.x] = tokens[inputs[p.slots + id.x]];
    }
}
