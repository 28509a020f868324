// Write a row's keys, values and position into its slot. An invocation takes 16 bytes of keys and 16 of values.
@group(0) @binding(0) var<storage, read_write> k: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> v: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> step: array<u32>;
@group(0) @binding(3) var<storage, read_write> keys: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read_write> values: array<vec4<u32>>;
@group(0) @binding(5) var<storage, read_write> key_positions: array<u32>;
struct Params {
    positions: u32, // where these begin in the step
    write_slots: u32,
}
@group(1) @binding(0) var<uniform> p: Params;

#include cache

@compute @workgroup_size(LOCAL)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x + id.z * ${65535 * LOCAL}u;
    let token = id.y;
    if (i >= ${HEADS * VECTORS}u) { return; }
    let head = i / ${VECTORS}u;
    let vector = i % ${VECTORS}u;
    let slot = step[p.write_slots + token];
    let at = (token * ${HEADS * WIDTH}u + i * ${PER_VECTOR}u) / 4u;
#if HALVES
    let key = pack_vector(k[at], k[at + 1u]);
    let value = pack_vector(v[at], v[at + 1u]);
#else
    let key = bitcast<vec4<u32>>(k[at]);
    let value = bitcast<vec4<u32>>(v[at]);
#end
    let place = slot / PAGE * HEADS + head;
    keys[(place * ${VECTORS}u + vector) * PAGE + slot % PAGE] = key;
    values[(place * PAGE + slot % PAGE) * ${VECTORS}u + vector] = value;
    if (i == 0u) { key_positions[slot] = step[p.positions + token]; }
}
