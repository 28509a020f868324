// How a weight matrix [rows, columns] lies in a buffer: rows RI at a time (a row group) and interleaved, columns 32 at a
// time (a block), so that the invocations of a row group, one a row, read neighbouring addresses.
//
//     codes   vec4<u32> [row group][block][VECTORS][RI]     scales   u32 [row group][ROW_WORDS][RI]
//
// FORMAT says what a vec4 holds, SCALES what the scales' words are. Columns past the matrix are zeros, and so are rows of the
// last row group. Of codes of five and six bits a vec4 has the lower four, and HIGH words of each block, which follow the row's
// scales, the rest: both lie so that four columns' codes come to be the bytes of a word in five operations.

#if HALF_CODES or HALF_SCALES
enable f16;
#end
// What is read at once. A matrix of two columns is the only type of 16 bytes that eight halves have.
alias Codes = ${"mat2x4<f16>" if HALF_CODES else "vec4<u32>"};
alias Scales = ${"vec2<f16>" if HALF_SCALES else "u32"};

#if HIGH == 1
// The codes of the k-th four columns, a byte each.
fn code_bytes(q: vec4<u32>, high: vec2<u32>, k: u32) -> u32 {
    var bits = high.x >> ((k - 4u) & 31u);
    if (k < 4u) { bits = high.x << (4u - k); }
    return ((q[k >> 1u] >> (4u * (k & 1u))) & 0x0F0F0F0Fu) | (bits & 0x10101010u);
}
#elif HIGH == 2
fn code_bytes(q: vec4<u32>, high: vec2<u32>, k: u32) -> u32 {
    let word = high[k >> 2u];
    let place = k & 3u;
    var bits = word >> ((2u * place - 4u) & 31u);
    if (place < 2u) { bits = word << (4u - 2u * place); }
    return ((q[k >> 1u] >> (4u * (k & 1u))) & 0x0F0F0F0Fu) | (bits & 0x30303030u);
}
#end

#if FORMAT == "lookup4"
// What each code stands for: sixteen whole numbers, a byte each.
fn looked_up(code: vec4<u32>) -> vec4<f32> {
    let odd = (code & vec4<u32>(4u)) != vec4<u32>(0u);
    let low = select(vec4<u32>(${TABLE[0]}u), vec4<u32>(${TABLE[1]}u), odd);
    let high = select(vec4<u32>(${TABLE[2]}u), vec4<u32>(${TABLE[3]}u), odd);
    let four = select(low, high, (code & vec4<u32>(8u)) != vec4<u32>(0u));
    return vec4<f32>(bitcast<vec4<i32>>(four << (vec4<u32>(24u) - 8u * (code & vec4<u32>(3u)))) >> vec4<u32>(24u));
}
#end

// The k-th four columns of a vec4, codes as whole numbers.
fn part(q: Codes, high: vec2<u32>, k: u32) -> vec4<f32> {
#if HIGH > 0
    let v = code_bytes(q, high, k);
    return vec4<f32>(vec4<u32>(v, v >> 8u, v >> 16u, v >> 24u) & vec4<u32>(255u));
#elif FORMAT in ("affine4", "lookup4")
    let v = q[k >> 1u] >> (16u * (k & 1u));
    let four = vec4<u32>(v, v >> 4u, v >> 8u, v >> 12u) & vec4<u32>(15u);
#if FORMAT == "lookup4"
    return looked_up(four);
#else
    return vec4<f32>(four);
#end
#elif FORMAT == "affine8"
    let v = q[k];
    return vec4<f32>(vec4<u32>(v, v >> 8u, v >> 16u, v >> 24u) & vec4<u32>(255u));
#elif HALF_CODES
    return vec4<f32>(q[k]);
#elif FORMAT == "f16"
    return vec4<f32>(unpack2x16float(q[2u * k]), unpack2x16float(q[2u * k + 1u]));
#elif FORMAT == "bf16"
    let a = q[2u * k];
    let b = q[2u * k + 1u];
    return bitcast<vec4<f32>>(vec4<u32>(a << 16u, a & 0xFFFF0000u, b << 16u, b & 0xFFFF0000u));
#else
    return bitcast<vec4<f32>>(q);
#end
}

#if AFFINE
#if FORMAT == "lookup4"
// What codes stand for has no place in its word.
fn part_in_place(q: vec4<u32>, high: vec2<u32>, k: u32) -> vec4<f32> { return part(q, high, k); }
fn place_factors(k: u32) -> vec4<f32> { return vec4<f32>(1.0); }
#else
// The same where codes stay at the place in their word that they have, with the factors that bring them down: what is
// multiplied with them takes these once for many weights. Each is exact, and none has the sign bit.
#if FORMAT == "affine4"
fn part_in_place(q: vec4<u32>, high: vec2<u32>, k: u32) -> vec4<f32> {
    let v = q[k >> 1u];
    var masked = vec4<u32>(v & 0xF0000u, v & 0xF00000u, v & 0xF000000u, v >> 28u);
    if ((k & 1u) == 0u) { masked = vec4<u32>(v & 0xFu, v & 0xF0u, v & 0xF00u, v & 0xF000u); }
    return vec4<f32>(vec4<i32>(masked));
}
fn place_factors(k: u32) -> vec4<f32> {
    if ((k & 1u) == 0u) { return vec4<f32>(1.0, 0.0625, 0.00390625, 0.000244140625); }
    return vec4<f32>(1.52587890625e-05, 9.5367431640625e-07, 5.9604644775390625e-08, 1.0);
}
#else
fn part_in_place(q: vec4<u32>, high: vec2<u32>, k: u32) -> vec4<f32> {
#if HIGH > 0
    let v = code_bytes(q, high, k);
#else
    let v = q[k];
#end
    return vec4<f32>(vec4<i32>(vec4<u32>(v & 0xFFu, v & 0xFF00u, v & 0xFF0000u, v >> 24u)));
}
fn place_factors(k: u32) -> vec4<f32> {
    return vec4<f32>(1.0, 0.00390625, 1.52587890625e-05, 1.0);
}
#end
#end

// Scale and minimum of a group, whose words begin at `base` plus the row's lane: the weight is scale · code + minimum.
fn scale_of(base: u32, group: u32, zero: f32) -> vec2<f32> {
#if SCALES == 0
#if HALF_SCALES
    let scale = f32(scales[base + (group >> 1u) * RI][group & 1u]);
#else
    let scale = unpack2x16float(scales[base + (group >> 1u) * RI] >> (16u * (group & 1u))).x;
#end
    return vec2<f32>(scale, -zero * scale);
#elif SCALES == 1 and HALF_SCALES
    return vec2<f32>(scales[base + group * RI]);
#elif SCALES == 1
    return unpack2x16float(scales[base + group * RI]);
#elif SCALES == 4
    let word = scales[base + (group >> 1u) * RI];
    return vec2<f32>(bitcast<f32>(select(word << 16u, word & 0xFFFF0000u, (group & 1u) == 1u)), 0.0);
#elif SCALES == 2
    let scale = bitcast<f32>(scales[base + group * RI]);
    return vec2<f32>(scale, -zero * scale);
#else
    return bitcast<vec2<f32>>(vec2<u32>(scales[base + 2u * group * RI], scales[base + (2u * group + 1u) * RI]));
#end
}

// The high bits of a block of codes; `base` is as above.
fn high_of(base: u32, block: u32) -> vec2<u32> {
#if HIGH == 1
    return vec2<u32>(scales[base + (SCALE_WORDS + block) * RI], 0u);
#elif HIGH == 2
    let at = base + (SCALE_WORDS + 2u * block) * RI;
    return vec2<u32>(scales[at], scales[at + RI]);
#else
    return vec2<u32>(0u);
#end
}
#end
