// Words with truth value i of a row as bit i % 32 of word i / 32, then zeros.
// constants: LOCAL
struct Params {
    first: u32,
    slots: u32,
    rows: u32,
    extent: u32,
    x_start: u32,
    y_start: u32,
    zero: u32,
}
#include rows

#include row_entry
    let words = (p.extent + 31u) / 32u;
    for (var w = workgroup.x * LOCAL + lane; w < words; w += workgroups.x * LOCAL) {
        var word = 0u;
        for (var i = w * 32u; i < min(w * 32u + 32u, p.extent); i++) {
            word |= select(0u, 1u, ${IN[0]}[p.x_start + row * p.extent + i] != 0u) << (i % 32u);
        }
        ${OUT[0]}[p.y_start + row * words + w] = word;
    }
}
