// The last rows of each sequence over their places of its tail, in vectors of four or in words. A row of workgroups takes the
// row that has so many after it.
@group(0) @binding(0) var<storage, read_write> x: array<${T}>;
@group(0) @binding(1) var<storage, read> step: array<u32>;
@group(0) @binding(2) var<storage, read_write> tail: array<${T}>;

#include recurrent

@compute @workgroup_size(LOCAL)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let s = sequence_at(id.z);
    if (id.x >= ELEMENTS || id.y >= s.rows) { return; }
    let row = s.rows - 1u - id.y;
    tail[(s.home * LENGTH + (s.start + row) % LENGTH) * ELEMENTS + id.x] = x[(s.first + row) * ELEMENTS + id.x];
}
