// Which keys of a sequence a row sees: see `attention` in the op table.

// Where the words of a sequence's custom mask begin in the step, or 0 if it has none.
uint mask_of(uint sequence) {
    uint start = MASKED ? step[MASK_STARTS + sequence] : 0u;
    return start == 0u ? 0u : MASK + start - 1u;
}

// Bit s: whether the mask lets row number `row` of its sequence see slot s of page entry number `entry`, of `entries`.
uint mask_bits(uint mask, uint row, uint entry, uint entries) {
    return mask == 0u ? 0xFFFFFFFFu : step[mask + row * entries + entry];
}

uint sequence_of(uint row) {
    uint low = 0u, high = step[COUNTS + 1u];
    while (high - low > 1u) {
        uint middle = (low + high) / 2u;
        if (step[QUERY_STARTS + middle] <= row) low = middle;
        else high = middle;
    }
    return low;
}
