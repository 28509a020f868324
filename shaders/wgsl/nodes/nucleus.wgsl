// The largest entry of each row down to which the entries, likeliest first, have probability p: four digits of its key are
// found from the top, by the probability that each digit holds.
// constants: LOCAL COPIES
struct Params {
    first: u32,
    slots: u32,
    rows: u32,
    extent: u32,
    x_start: u32,
    argument_start: u32,
    argument_rows: u32, // how many rows share an argument
    y_start: u32,
    one: f32, // what a weight of 1 counts
    zero: u32,
}
#include rows
#include keys
#include exp
#include bins
#include masses
#include agreed

var<workgroup> highest: atomic<u32>;
var<workgroup> lowest: atomic<u32>;

// The largest and the least key of a row.
fn extremes(base: u32) -> vec2<u32> {
    var high = 0u;
    var low = 0xFFFFFFFFu;
    for (var i = lane; i < p.extent; i += LOCAL) {
        let key = key_of(${IN[0]}[base + i], F32_);
        high = max(high, key);
        low = min(low, key);
    }
    if (lane == 0u) {
        atomicStore(&highest, 0u);
        atomicStore(&lowest, 0xFFFFFFFFu);
    }
    workgroupBarrier();
    atomicMax(&highest, high);
    atomicMin(&lowest, low);
    workgroupBarrier();
    return vec2<u32>(atomicLoad(&highest), atomicLoad(&lowest));
}

fn threshold(base: u32, share: f32, best: f32) -> u32 {
    var wanted = Mass(0u, 0u);
    var prefix = 0u;
    for (var shift = 32u; shift > 0u; shift -= 8u) {
        clear_masses();
        let known = select(0xFFFFFFFFu << (shift & 31u), 0u, shift == 32u);
        for (var i = lane; i < p.extent; i += LOCAL) {
            let word = ${IN[0]}[base + i];
            let key = key_of(word, F32_);
            if ((key & known) == prefix) {
                let bin = (key >> (shift - 8u)) & 0xFFu;
                add_mass(bin_place(bin), exp_below(bitcast<f32>(word) - best), p.one);
            }
        }
        sum_blocks();
        if (shift == 32u) { wanted = share_of(total_mass(), share); }
        prefix |= find_mass(&wanted) << (shift - 8u);
    }
    return prefix;
}

#include row_entry
    let base = p.x_start + row * p.extent;
    let share = bitcast<f32>(agreed(${IN[1]}[p.argument_start + row / p.argument_rows], lane == 0u));
    let ends = extremes(base);
    let best = agreed(word_of(ends.x), lane == 0u);
    var found = ends.x;
    if (!(share < 1.0)) {
        found = ends.y;
    } else if ((best & 0x7F800000u) != 0x7F800000u) {
        // With an infinite maximum nothing else is possible.
        found = threshold(base, max(share, 0.0), bitcast<f32>(best));
    }
    if (lane == 0u) { ${OUT[0]}[p.y_start + row] = word_of(found); }
}
