// Counts of a digit of the keys, and which digit the wanted key has.

#include "bins.glsl"

shared uint bins[BINS * COPIES];

void clear_bins() {
    barrier();
    for (uint i = LANE; i < BINS * COPIES; i += LOCAL) bins[i] = 0u;
    barrier();
}

shared uint blocks[BLOCK];

// The highest bin with which at least `wanted` are counted; `wanted` becomes what is left for it.
uint find_bin(inout uint wanted) {
    barrier();
    if (LANE < BLOCK) {
        uint total = 0u;
        for (uint i = LANE * BLOCK * COPIES; i < (LANE + 1u) * BLOCK * COPIES; i++) total += bins[i];
        blocks[LANE] = total;
    }
    barrier();
    uint block = BLOCK - 1u;
    while (block > 0u && blocks[block] < wanted) wanted -= blocks[block--];
    uint bin = block * BLOCK + BLOCK - 1u;
    for (; bin > block * BLOCK; bin--) {
        uint here = 0u;
        for (uint copy = 0u; copy < COPIES; copy++) here += bins[bin * COPIES + copy];
        if (here >= wanted) break;
        wanted -= here;
    }
    return bin;
}
