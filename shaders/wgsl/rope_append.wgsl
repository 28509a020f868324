// Rope of queries and of keys, and kv_append of those keys, in one launch: an invocation turns a pair of a query, or turns
// and writes 16 bytes of keys and writes the values beside them.
@group(0) @binding(0) var<storage, read_write> q: array<f32>;
@group(0) @binding(1) var<storage, read_write> k: array<f32>;
@group(0) @binding(2) var<storage, read_write> v: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> step: array<u32>;
@group(0) @binding(4) var<uniform> frequencies: array<vec4<u32>, ${(ROTARY + 3) // 4}>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(6) var<storage, read_write> keys: array<vec4<u32>>;
@group(0) @binding(7) var<storage, read_write> values: array<vec4<u32>>;
@group(0) @binding(8) var<storage, read_write> key_positions: array<u32>;
struct Params {
    positions: u32, // where these begin in the step
    write_slots: u32,
}
@group(1) @binding(0) var<uniform> p: Params;

#include cache
#include turns

fn turn_query(token: u32, i: u32) {
    let pair = i % ${WIDTH // 2}u;
    let base = token * ${HEADS * WIDTH}u + i / ${WIDTH // 2}u * WIDTH;
    if (pair >= ${ROTARY // 2}u) {
        y[base + 2u * pair] = q[base + 2u * pair];
        y[base + 2u * pair + 1u] = q[base + 2u * pair + 1u];
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
    y[a] = q[a] * turn.x - q[b] * turn.y;
    y[b] = q[a] * turn.y + q[b] * turn.x;
}

// The value that a key has in column d of its head after the turn.
fn turned_key(base: u32, position: u32, d: u32) -> f32 {
    if (d >= ROTARY) { return k[base + d]; }
#if NEOX
    let second = d >= ${ROTARY // 2}u;
    let pair = d % ${ROTARY // 2}u;
    let partner = select(d + ${ROTARY // 2}u, d - ${ROTARY // 2}u, second);
#else
    let second = (d & 1u) == 1u;
    let pair = d / 2u;
    let partner = d ^ 1u;
#end
    let turn = MAGNITUDE * cos_sin_of_turns(position, frequency_of(pair));
    return k[base + d] * turn.x + k[base + partner] * select(-turn.y, turn.y, second);
}

fn append(token: u32, i: u32) {
    let head = i / ${VECTORS}u;
    let vector = i % ${VECTORS}u;
    let slot = step[p.write_slots + token];
    let position = step[p.positions + token];
    let base = (token * ${KV_HEADS}u + head) * WIDTH;
    let d = vector * ${PER_VECTOR}u;
    let low = vec4<f32>(turned_key(base, position, d), turned_key(base, position, d + 1u),
                        turned_key(base, position, d + 2u), turned_key(base, position, d + 3u));
    let place = slot / PAGE * ${KV_HEADS}u + head;
    let at = (base + d) / 4u;
#if HALVES
    let high = vec4<f32>(turned_key(base, position, d + 4u), turned_key(base, position, d + 5u),
                         turned_key(base, position, d + 6u), turned_key(base, position, d + 7u));
    let key = pack_vector(low, high);
    let value = pack_vector(v[at], v[at + 1u]);
#else
    let key = bitcast<vec4<u32>>(low);
    let value = bitcast<vec4<u32>>(v[at]);
#end
    keys[(place * ${VECTORS}u + vector) * PAGE + slot % PAGE] = key;
    values[(place * PAGE + slot % PAGE) * ${VECTORS}u + vector] = value;
    if (i == 0u) { key_positions[slot] = position; }
}

@compute @workgroup_size(LOCAL)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x + id.z * ${65535 * LOCAL}u;
    let pairs = ${HEADS * WIDTH // 2}u;
    if (i < pairs) {
        turn_query(id.y, i);
    } else if (i < pairs + ${KV_HEADS * VECTORS}u) {
        append(id.y, i - pairs);
    }
}
