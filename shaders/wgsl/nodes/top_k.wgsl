// The k largest of each row in falling order, k ≤ 1024, and where they are; of equal ones the first. The k-th key is found
// digit by digit, then, where only some of its equals fit, the last of their indices; what is left is ranked by counting.
// constants: LOCAL COPIES TYPE K
struct Params {
    first: u32,
    slots: u32,
    rows: u32,
    extent: u32,
    x_start: u32,
    values_start: u32,
    places_start: u32,
    zero: u32,
}
#include rows
#include keys
#include bins
#include histogram
#include agreed

var<workgroup> chosen_key: array<u32, ${K}>;
var<workgroup> chosen_place: array<u32, ${K}>;
var<workgroup> chosen: atomic<u32>;

// The key that `wanted` keys of the row reach; with `among`, among the inverted indices of the keys that equal it.
fn select_key(base: u32, wanted: ptr<function, u32>, among: bool, equal: u32) -> u32 {
    var prefix = 0u;
    for (var shift = 32u; shift > 0u; shift -= 8u) {
        clear_bins();
        let known = select(0xFFFFFFFFu << (shift & 31u), 0u, shift == 32u);
        for (var i = lane; i < p.extent; i += LOCAL) {
            let own = key_of(${IN[0]}[base + i], TYPE);
            let key = select(own, ~i, among);
            if ((!among || own == equal) && (key & known) == prefix) {
                atomicAdd(&bins[bin_place((key >> (shift - 8u)) & 0xFFu)], 1u);
            }
        }
        prefix |= find_bin(wanted) << (shift - 8u);
    }
    return prefix;
}

#include row_entry
    let base = p.x_start + row * p.extent;
    var wanted = K;
    let least = select_key(base, &wanted, false, 0u);
    // The last digit's bin counts the keys that equal the least: do all of them fit?
    var equals = 0u;
    for (var copy = 0u; copy < COPIES; copy++) { equals += atomicLoad(&bins[(least & 0xFFu) * COPIES + copy]); }
    var last = 0xFFFFFFFFu;
    if (agreed(select(0u, 1u, equals > wanted), lane == 0u) == 1u) { last = ~select_key(base, &wanted, true, least); }
    workgroupBarrier();
    if (lane == 0u) { atomicStore(&chosen, 0u); }
    workgroupBarrier();
    for (var i = lane; i < p.extent; i += LOCAL) {
        let key = key_of(${IN[0]}[base + i], TYPE);
        if (key > least || (key == least && i <= last)) {
            let place = atomicAdd(&chosen, 1u);
            chosen_key[place] = key;
            chosen_place[place] = i;
        }
    }
    workgroupBarrier();
    for (var i = lane; i < K; i += LOCAL) {
        let key = chosen_key[i];
        let place = chosen_place[i];
        var rank = 0u;
        for (var j = 0u; j < K; j++) {
            if (chosen_key[j] > key || (chosen_key[j] == key && chosen_place[j] < place)) { rank++; }
        }
        ${OUT[0]}[p.values_start + row * K + rank] = ${IN[0]}[base + place];
        ${OUT[1]}[p.places_start + row * K + rank] = place;
    }
}
