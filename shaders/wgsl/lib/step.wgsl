// What attention's kernels are told: where the fields of a step lie in its block, in words, for the block's layout depends on
// the bucket; and what differs between layers and launches, so that one pipeline serves them all.
struct Params {
    counts: u32,
    positions: u32,
    row_index: u32,
    query_starts: u32,
    page_starts: u32,
    pages: u32,
    page_bits: u32,
    fresh_bits: u32,
    window: u32, // tokens that a row sees; 0 for all
    split: u32, // keys that a workgroup takes, a multiple of its chunk and of a page; 0 for all
    singles: u32, // 1: sequences of one row, 0: the others
#if MASKED
    mask_starts: u32,
    mask: u32,
#end
#if OBSERVED
    mass_rows: u32,
    mass_starts: u32,
    mass_layers: u32,
    layer: u32,
#end
}
@group(1) @binding(0) var<uniform> p: Params;

#if MASKED
// Where the words of a sequence's custom mask begin in the step, or 0 if it has none.
fn mask_of(sequence: u32) -> u32 {
    let start = step[p.mask_starts + sequence];
    return select(p.mask + start - 1u, 0u, start == 0u);
}

// Bit s: whether the mask lets row number `row` of its sequence see slot s of page entry number `entry`, of `entries`.
fn mask_bits(mask: u32, row: u32, entry: u32, entries: u32) -> u32 {
    if (mask == 0u) { return 0xFFFFFFFFu; }
    return step[mask + row * entries + entry];
}
#end

fn sequence_of(row: u32) -> u32 {
    var low = 0u;
    var high = step[p.counts + 1u];
    while (high - low > 1u) {
        let middle = (low + high) / 2u;
        if (step[p.query_starts + middle] <= row) { low = middle; } else { high = middle; }
    }
    return low;
}

fn within_window(position: u32, key_position: u32) -> bool {
    return bitcast<i32>(position) - bitcast<i32>(key_position) < bitcast<i32>(p.window);
}

fn capped(score: f32) -> f32 {
#if SOFTCAP > 0
    // Drivers may compute tanh from two exponentials, which overflow; past 10 it is 1 in float32.
    return SOFTCAP * tanh(clamp(score / SOFTCAP, -10.0, 10.0));
#else
    return score;
#end
}
