// y[t] = Σ_j weights[t,j] · the j-th part of x[t], in vectors of four or in words.
@group(0) @binding(0) var<storage, read_write> x: array<${T}>;
@group(0) @binding(1) var<storage, read_write> weights: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<${T}>;

@compute @workgroup_size(LOCAL)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x + id.z * ${65535 * LOCAL}u;
    if (i >= ELEMENTS) { return; }
    var sum = ${T}(0.0);
    for (var j = 0u; j < CHOSEN; j++) { sum += weights[id.y * CHOSEN + j] * x[(id.y * CHOSEN + j) * ELEMENTS + i]; }
    y[id.y * ELEMENTS + i] = sum;
}
