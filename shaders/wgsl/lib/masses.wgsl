// Sums of probabilities that are the same in any order: fixed-point numbers of two words, and the higher one counts `one` for
// a weight of 1.
#include wide

var<workgroup> mass_low: array<atomic<u32>, ${256 * COPIES}>;
var<workgroup> mass_high: array<atomic<u32>, ${256 * COPIES}>;
var<workgroup> block_low: array<u32, 16>;
var<workgroup> block_high: array<u32, 16>;

struct Mass {
    high: u32,
    low: u32,
}

fn plus(a: Mass, b: Mass) -> Mass {
    let low = a.low + b.low;
    return Mass(a.high + b.high + select(0u, 1u, low < a.low), low);
}

fn minus(a: Mass, b: Mass) -> Mass {
    return Mass(a.high - b.high - select(0u, 1u, a.low < b.low), a.low - b.low);
}

fn reaches(a: Mass, b: Mass) -> bool { return a.high > b.high || (a.high == b.high && a.low >= b.low); }

// A share below 1 of it, rounded down, but not nothing.
fn share_of(total: Mass, share: f32) -> Mass {
    let parts = u32(share * 4294967296.0);
    let found = plus(Mass(high_product(total.high, parts), total.high * parts), Mass(0u, high_product(total.low, parts)));
    if (found.high == 0u && found.low == 0u) { return Mass(0u, 1u); }
    return found;
}

fn clear_masses() {
    workgroupBarrier();
    for (var i = lane; i < BINS * COPIES; i += LOCAL) {
        atomicStore(&mass_low[i], 0u);
        atomicStore(&mass_high[i], 0u);
    }
    workgroupBarrier();
}

// `weight` is at most 1, and `one` is a power of two.
fn add_mass(place: u32, weight: f32, one: f32) {
    let scaled = weight * one;
    let whole = floor(scaled);
    let low = u32((scaled - whole) * 4294967296.0);
    var high = u32(whole);
    if (low != 0u) {
        let before = atomicAdd(&mass_low[place], low);
        if (before + low < before) { high++; }
    }
    if (high != 0u) { atomicAdd(&mass_high[place], high); }
}

fn mass_of_bin(bin: u32) -> Mass {
    var total = Mass(0u, 0u);
    for (var copy = 0u; copy < COPIES; copy++) {
        let place = bin * COPIES + copy;
        total = plus(total, Mass(atomicLoad(&mass_high[place]), atomicLoad(&mass_low[place])));
    }
    return total;
}

fn sum_blocks() {
    workgroupBarrier();
    if (lane < BLOCK) {
        var total = Mass(0u, 0u);
        for (var bin = lane * BLOCK; bin < (lane + 1u) * BLOCK; bin++) { total = plus(total, mass_of_bin(bin)); }
        block_low[lane] = total.low;
        block_high[lane] = total.high;
    }
    workgroupBarrier();
}

fn mass_of_block(block: u32) -> Mass { return Mass(block_high[block], block_low[block]); }

fn total_mass() -> Mass {
    var total = Mass(0u, 0u);
    for (var block = 0u; block < BLOCK; block++) { total = plus(total, mass_of_block(block)); }
    return total;
}

// The highest bin with which at least `wanted` is there; `wanted` becomes what is left for it. After sum_blocks.
fn find_mass(wanted: ptr<function, Mass>) -> u32 {
    var block = BLOCK - 1u;
    while (block > 0u && !reaches(mass_of_block(block), *wanted)) {
        *wanted = minus(*wanted, mass_of_block(block));
        block--;
    }
    var bin = block * BLOCK + BLOCK - 1u;
    for (; bin > block * BLOCK; bin--) {
        let here = mass_of_bin(bin);
        if (reaches(here, *wanted)) { break; }
        *wanted = minus(*wanted, here);
    }
    return bin;
}
