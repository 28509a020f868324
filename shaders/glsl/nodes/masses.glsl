// Sums of probabilities that are the same in any order: fixed-point numbers of two words, and
// the higher one counts `one` for a weight of 1.

#include "bins.glsl"

shared uint mass_low[BINS * COPIES], mass_high[BINS * COPIES], block_low[BLOCK], block_high[BLOCK];

struct Mass { uint high, low; };

Mass plus(Mass a, Mass b) {
    uint carry, low = uaddCarry(a.low, b.low, carry);
    return Mass(a.high + b.high + carry, low);
}

Mass minus(Mass a, Mass b) {
    uint borrow, low = usubBorrow(a.low, b.low, borrow);
    return Mass(a.high - b.high - borrow, low);
}

bool reaches(Mass a, Mass b) { return a.high > b.high || (a.high == b.high && a.low >= b.low); }

// A share of it, rounded down, but not nothing.
Mass share_of(Mass total, float share) {
    uint parts = uint(share * 4294967296.0), high, low, rest, unused;
    umulExtended(total.high, parts, high, low);
    umulExtended(total.low, parts, rest, unused);
    Mass found = plus(Mass(high, low), Mass(0u, rest));
    return found.high == 0u && found.low == 0u ? Mass(0u, 1u) : found;
}

void clear_masses() {
    barrier();
    for (uint i = LANE; i < BINS * COPIES; i += LOCAL) {
        mass_low[i] = 0u;
        mass_high[i] = 0u;
    }
    barrier();
}

// `weight` is at most 1, and `one` is a power of two.
void add_mass(uint place, float weight, float one) {
    float scaled = weight * one, whole = floor(scaled);
    uint low = uint((scaled - whole) * 4294967296.0), high = uint(whole);
    if (low != 0u) {
        uint before = atomicAdd(mass_low[place], low);
        if (before + low < before) high++;
    }
    if (high != 0u) atomicAdd(mass_high[place], high);
}

Mass mass_of_bin(uint bin) {
    Mass total = Mass(0u, 0u);
    for (uint copy = 0u; copy < COPIES; copy++)
        total = plus(total, Mass(mass_high[bin * COPIES + copy], mass_low[bin * COPIES + copy]));
    return total;
}

void sum_blocks() {
    barrier();
    if (LANE < BLOCK) {
        Mass total = Mass(0u, 0u);
        for (uint bin = LANE * BLOCK; bin < (LANE + 1u) * BLOCK; bin++) total = plus(total, mass_of_bin(bin));
        block_low[LANE] = total.low;
        block_high[LANE] = total.high;
    }
    barrier();
}

Mass mass_of_block(uint block) { return Mass(block_high[block], block_low[block]); }

Mass total_mass() {
    Mass total = Mass(0u, 0u);
    for (uint block = 0u; block < BLOCK; block++) total = plus(total, mass_of_block(block));
    return total;
}

// The highest bin with which at least `wanted` is there; `wanted` becomes what is left for it. After sum_blocks.
uint find_mass(inout Mass wanted) {
    uint block = BLOCK - 1u;
    while (block > 0u && !reaches(mass_of_block(block), wanted)) wanted = minus(wanted, mass_of_block(block--));
    uint bin = block * BLOCK + BLOCK - 1u;
    for (; bin > block * BLOCK; bin--) {
        Mass here = mass_of_bin(bin);
        if (reaches(here, wanted)) break;
        wanted = minus(wanted, here);
    }
    return bin;
}
