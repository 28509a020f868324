// Rows of the passes that a call really has: a workgroup's LOCAL invocations share a row. Workgroups are counted along y, then z.
@group(1) @binding(0) var<uniform> p: Params;

#include memories

var<private> lane: u32;

// Of the round that begins with pass `first` and holds at most `slots` passes of `rows` rows each.
fn true_rows() -> u32 {
    let passes = inputs[COUNTS];
    return min(select(0u, passes - p.first, passes > p.first), p.slots) * p.rows;
}
