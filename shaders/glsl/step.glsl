// What attention's kernels are told: where the fields of a step lie in its block, in words, for the block's layout depends on
// the bucket; and what differs between layers and launches, so that one pipeline serves them all.
layout(push_constant) uniform Fields {
    uint COUNTS;
    uint POSITIONS;
    uint ROW_INDEX;
    uint QUERY_STARTS;
    uint PAGE_STARTS;
    uint PAGES;
    uint PAGE_BITS;
    uint FRESH_BITS;
    uint WINDOW;  // tokens that a row sees; 0 for all
    uint SPLIT;   // keys that a workgroup takes, a multiple of its chunk and of a page; 0 for all
    uint SINGLES; // 1: sequences of one row, 0: the others
    uint MASK_STARTS; // these two only where the Program has custom masks
    uint MASK;
#ifdef OBSERVED
    uint MASS_ROWS;
    uint MASS_STARTS;
    uint MASS_LAYERS;
    uint LAYER;
#endif
};
