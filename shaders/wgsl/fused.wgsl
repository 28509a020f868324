// What stands before the text of an epilogue's fused kernel, which is written when the epilogue is first used.
struct Params {
    first: u32,
    slots: u32,
    zero: u32,
}
@group(1) @binding(0) var<uniform> p: Params;

#include memories
@group(0) @binding(4) var<storage, read> hidden: array<u32>;

// Of the round that begins with pass `first` and holds at most `slots` passes of ROWS rows each.
fn true_rows() -> u32 {
    let passes = inputs[COUNTS];
    return min(select(0u, passes - p.first, passes > p.first), p.slots) * ROWS;
}
