// Counts of a digit of the keys, and which digit the wanted key has.
var<workgroup> bins: array<atomic<u32>, ${256 * COPIES}>;
var<workgroup> blocks: array<u32, 16>;

fn clear_bins() {
    workgroupBarrier();
    for (var i = lane; i < BINS * COPIES; i += LOCAL) { atomicStore(&bins[i], 0u); }
    workgroupBarrier();
}

// The highest bin with which at least `wanted` are counted; `wanted` becomes what is left for it.
fn find_bin(wanted: ptr<function, u32>) -> u32 {
    workgroupBarrier();
    if (lane < BLOCK) {
        var total = 0u;
        for (var i = lane * BLOCK * COPIES; i < (lane + 1u) * BLOCK * COPIES; i++) { total += atomicLoad(&bins[i]); }
        blocks[lane] = total;
    }
    workgroupBarrier();
    var block = BLOCK - 1u;
    while (block > 0u && blocks[block] < *wanted) {
        *wanted -= blocks[block];
        block--;
    }
    var bin = block * BLOCK + BLOCK - 1u;
    for (; bin > block * BLOCK; bin--) {
        var here = 0u;
        for (var copy = 0u; copy < COPIES; copy++) { here += atomicLoad(&bins[bin * COPIES + copy]); }
        if (here >= *wanted) { break; }
        *wanted -= here;
    }
    return bin;
}
