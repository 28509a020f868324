// y[t, ·] = scale · table[id]; id = token_src[t], or tokens[−1 − token_src[t]] where that is negative. An invocation writes a
// block of 32 columns; a table in several parts takes a launch for each, which leaves the other parts' rows alone.
@group(0) @binding(0) var<storage, read> codes: array<Codes>;
#if AFFINE
@group(0) @binding(1) var<storage, read> scales: array<Scales>;
#end
@group(0) @binding(2) var<storage, read> step: array<u32>;
@group(0) @binding(3) var<storage, read> tokens: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
struct Params {
    first: u32, // row of the table that this part begins with
    rows: u32,
    scales_at: u32, // in words
    sources: u32, // where token_src begins in the step
    factor: f32,
    zero: f32,
}
@group(1) @binding(0) var<uniform> p: Params;

#include weights

@compute @workgroup_size(LOCAL)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let block = id.x;
    let token = id.y;
    let source = step[p.sources + token];
    var found = source;
    if (source >= 0x80000000u) { found = tokens[0xFFFFFFFFu - source]; }
    // A row before this part wraps round to a large number.
    let row = found - p.first;
    if (block >= ${BLOCKS}u || row >= p.rows) { return; }
    let lane = row % RI;
    let base = (row / RI * ${BLOCKS}u + block) * ${VECTORS * RI}u + lane;
#if AFFINE
    let scale_base = p.scales_at + row / RI * ${ROW_WORDS * RI}u + lane;
    let high = high_of(scale_base, block);
#else
    let high = vec2<u32>(0u);
#end
#for v in VECTORS
    {
        let q = codes[base + ${v}u * RI];
#for k in PARTS
        {
            var w = part(q, high, ${k}u);
            let column = block * 32u + ${(v * PARTS + k) * 4}u;
#if AFFINE
            let scale = scale_of(scale_base, column / ${GROUP}u, p.zero);
            w = scale.x * w + vec4<f32>(scale.y);
#end
#for c in 4
            if (column + ${c}u < ${COLUMNS}u) { y[token * ${COLUMNS}u + column + ${c}u] = w[${c}] * p.factor; }
#end
        }
#end
    }
#end
}
