// Each entry of the passes' values into its slot of the engine's tokens, where later passes may find it; a slot past the end
// keeps nothing.
@group(0) @binding(0) var<storage, read> inputs: array<u32>;
@group(0) @binding(1) var<storage, read_write> tokens: array<u32>;
#if CHOSEN == "outputs"
@group(0) @binding(2) var<storage, read_write> outputs: array<u32>;
#end
struct Params {
    chosen: u32, // where these begin
    slots: u32,
    room: u32,
    each: u32, // entries of a pass
}
@group(1) @binding(0) var<uniform> p: Params;

@compute @workgroup_size(LOCAL)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < inputs[COUNTS] * p.each && inputs[p.slots + id.x] < p.room) {
        tokens[inputs[p.slots + id.x]] = ${CHOSEN}[p.chosen + id.x];
    }
}
