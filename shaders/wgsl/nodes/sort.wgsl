// One pass of a stable radix sort of each row's indices, by the digit of BITS bits at `shift` of their keys. An invocation
// takes a stretch of the row: it counts its digits, learns where each of them begins, and moves its indices there.
// The first pass takes the indices in order; the last one writes the entries too.
// constants: LOCAL TYPE BITS FALLING IS_FIRST IS_LAST
struct Params {
    first: u32,
    slots: u32,
    rows: u32,
    extent: u32,
    x_start: u32,
    from_start: u32,
    to_start: u32,
    values_start: u32,
    kept: u32, // the first so many entries are written
    shift: u32,
    zero: u32,
}
#include rows
#include keys

const DIGITS = ${1 << BITS}u;
var<workgroup> places: array<u32, ${(1 << BITS) * LOCAL}>;
var<workgroup> sums: array<u32, ${LOCAL}>;

fn digit(word: u32) -> u32 {
    let key = key_of(word, TYPE);
#if FALLING
    return (~key >> p.shift) & (DIGITS - 1u);
#else
    return (key >> p.shift) & (DIGITS - 1u);
#end
}

#include row_entry
    let base = p.x_start + row * p.extent;
    let source = p.from_start + row * p.extent;
    let stretch = (p.extent + LOCAL - 1u) / LOCAL;
    let begin = min(lane * stretch, p.extent);
    let end = min(begin + stretch, p.extent);
    for (var d = 0u; d < DIGITS; d++) { places[d * LOCAL + lane] = 0u; }
    for (var i = begin; i < end; i++) {
#if IS_FIRST
        let index = i;
#else
        let index = ${IN[1]}[source + i];
#end
        places[digit(${IN[0]}[base + index]) * LOCAL + lane]++;
    }
    workgroupBarrier();
    // Counts become places: digit by digit, in each the invocations in order. An invocation sums DIGITS of them.
    var total = 0u;
    for (var i = lane * DIGITS; i < (lane + 1u) * DIGITS; i++) { total += places[i]; }
    sums[lane] = total;
    workgroupBarrier();
    total = 0u;
    for (var i = 0u; i < lane; i++) { total += sums[i]; }
    for (var i = lane * DIGITS; i < (lane + 1u) * DIGITS; i++) {
        let count = places[i];
        places[i] = total;
        total += count;
    }
    workgroupBarrier();
    for (var i = begin; i < end; i++) {
#if IS_FIRST
        let index = i;
#else
        let index = ${IN[1]}[source + i];
#end
        let word = ${IN[0]}[base + index];
        let own = digit(word) * LOCAL + lane;
        let place = places[own];
        places[own] = place + 1u;
#if IS_LAST
        if (place < p.kept) {
            ${OUT[0]}[p.to_start + row * p.kept + place] = index;
            ${OUT[1]}[p.values_start + row * p.kept + place] = word;
        }
#else
        ${OUT[0]}[p.to_start + row * p.extent + place] = index;
#end
    }
}
