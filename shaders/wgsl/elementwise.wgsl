// What takes each value by itself, by KIND: activation, glu, clamped_glu, add, mul, scale, softcap, store; in vectors of four or in words.
@group(0) @binding(0) var<storage, read_write> x: array<${T}>;
#if TWO
@group(0) @binding(1) var<storage, read_write> other: array<${"f32" if COLUMN else T}>;
#end
@group(0) @binding(2) var<storage, read_write> z: array<${T}>;
#if ACT
#include activations
#elif KIND == "softcap"
#include activations
#end

@compute @workgroup_size(LOCAL)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x + id.z * ${65535 * LOCAL}u;
    let at = id.y * ELEMENTS + i;
    if (i >= ELEMENTS) { return; }
    let a = x[at];
#if TWO and COLUMN
    let b = ${T}(other[id.y]);
#elif TWO
    let b = other[at];
#else
    let b = a;
#end
#if KIND == "activation"
    z[at] = activate(a);
#elif KIND == "glu"
    z[at] = activate(a) * b;
#elif KIND == "add"
    z[at] = a + b;
#elif KIND == "mul"
    z[at] = a * b;
#elif KIND == "clamped_glu"
    // g · sigmoid(slope · g) · (u + 1), g being at most LIMIT and u within ±LIMIT.
    let g = min(a, ${T}(LIMIT));
    z[at] = g / (1.0 + exp(-SLOPE * g)) * (clamp(b, ${T}(-LIMIT), ${T}(LIMIT)) + 1.0);
#elif KIND == "scale"
    z[at] = FACTOR * a;
#elif KIND == "softcap"
    z[at] = CAP * safe_tanh(a / CAP);
#else
    z[at] = a;
#end
}
