// Running sums along an axis. An invocation sums a stretch of it, learns what comes before, and goes through it again.
// Sums of floats keep what they round away (Neumaier), as if they were made in twice the precision.
// constants: LOCAL FLOATS
struct Params {
    first: u32,
    slots: u32,
    rows: u32,
    extent: u32,
    x_start: u32,
    y_start: u32,
    stride: u32, // entries between neighbours of the axis
    zero: u32,
}
#include rows

var<workgroup> sums: array<u32, ${LOCAL}>;
var<workgroup> losses: array<u32, ${LOCAL}>;

struct Sum {
    total: u32,
    loss: u32,
}

fn plus(sum: Sum, word: u32) -> Sum {
#if FLOATS
    let total = bitcast<f32>(sum.total);
    let value = bitcast<f32>(word);
    let next = exact(total + value);
    let large = exact(exact(total - next) + value);
    let small = exact(exact(value - next) + total);
    let lost = select(small, large, abs(total) >= abs(value));
    let loss = exact(bitcast<f32>(sum.loss) + lost);
    // Infinities lose nothing.
    let bits = bitcast<u32>(next);
    return Sum(bits, select(bitcast<u32>(loss), 0u, (bits & 0x7F800000u) == 0x7F800000u));
#else
    return Sum(sum.total + word, 0u);
#end
}

fn rounded(sum: Sum) -> u32 {
#if FLOATS
    return bitcast<u32>(exact(bitcast<f32>(sum.total) + bitcast<f32>(sum.loss)));
#else
    return sum.total;
#end
}

#include row_entry
    let base = row / p.stride * p.stride * p.extent + row % p.stride;
    let stretch = (p.extent + LOCAL - 1u) / LOCAL;
    let begin = min(lane * stretch, p.extent);
    let end = min(begin + stretch, p.extent);
    var sum = Sum(0u, 0u);
    for (var i = begin; i < end; i++) { sum = plus(sum, ${IN[0]}[p.x_start + base + i * p.stride]); }
    sums[lane] = sum.total;
    losses[lane] = sum.loss;
    workgroupBarrier();
    sum = Sum(0u, 0u);
    for (var i = 0u; i < lane; i++) {
        sum = plus(sum, sums[i]);
#if FLOATS
        sum = plus(sum, losses[i]);
#end
    }
    for (var i = begin; i < end; i++) {
        sum = plus(sum, ${IN[0]}[p.x_start + base + i * p.stride]);
        ${OUT[0]}[p.y_start + base + i * p.stride] = rounded(sum);
    }
}
