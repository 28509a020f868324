// The k-th largest of each row: four digits of its key are found from the top.
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
    is_signed: u32,
    zero: u32,
}
#include rows
#include keys
#include bins
#include histogram

#include row_entry
    let k = ${IN[1]}[p.argument_start + row / p.argument_rows];
    var wanted = clamp(k, 1u, p.extent);
    if (p.is_signed != 0u && bitcast<i32>(k) < 1) { wanted = 1u; }
    let base = p.x_start + row * p.extent;
    var prefix = 0u;
    for (var shift = 32u; shift > 0u; shift -= 8u) {
        clear_bins();
        let known = select(0xFFFFFFFFu << (shift & 31u), 0u, shift == 32u);
        for (var i = lane; i < p.extent; i += LOCAL) {
            let key = key_of(${IN[0]}[base + i], F32_);
            if ((key & known) == prefix) { atomicAdd(&bins[bin_place((key >> (shift - 8u)) & 0xFFu)], 1u); }
        }
        prefix |= find_bin(&wanted) << (shift - 8u);
    }
    if (lane == 0u) { ${OUT[0]}[p.y_start + row] = word_of(prefix); }
}
