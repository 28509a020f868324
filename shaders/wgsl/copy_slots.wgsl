// Tokens of a paged state [pages, outer, slots, inner] to other slots, for i < counts[0], in two launches: the first gathers
// them into a scratch buffer, the second writes them out, so that all are read before any is written. Values are 16-byte
// vectors or words.
@group(0) @binding(0) var<storage, read> step: array<u32>;
@group(0) @binding(1) var<storage, read_write> state: array<${T}>;
@group(0) @binding(2) var<storage, read_write> scratch: array<${T}>;
struct Params {
    slots: u32, // where they begin in the inputs
}
@group(1) @binding(0) var<uniform> p: Params;

@compute @workgroup_size(LOCAL)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x + id.z * ${65535 * LOCAL}u;
    if (i >= ${OUTER * INNER}u) { return; }
    let slot = step[p.slots + id.y];
    let place = ((slot / PAGE * ${OUTER}u + i / ${INNER}u) * PAGE + slot % PAGE) * ${INNER}u + i % ${INNER}u;
    let kept = id.y * ${OUTER * INNER}u + i;
#if GATHER
    scratch[kept] = state[place];
#else
    state[place] = scratch[kept];
#end
}
