// Draws: Threefry-2x32-20 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) and Gumbel noise, the same
// bits on every device.
fn threefry(key: vec2<u32>, counter: vec2<u32>) -> vec2<u32> {
    let last = key.x ^ key.y ^ 0x1BD11BDAu;
    var a = counter.x + key.x;
    var b = counter.y + key.y;
#for i in 20
    a += b;
    b = ((b << ${(13, 15, 26, 6, 17, 29, 16, 24)[i % 8]}u) | (b >> ${32 - (13, 15, 26, 6, 17, 29, 16, 24)[i % 8]}u)) ^ a;
#if i % 4 == 3
    a += ${("key.x", "key.y", "last")[(i // 4 + 1) % 3]};
    b += ${("key.x", "key.y", "last")[(i // 4 + 2) % 3]} + ${i // 4 + 1}u;
#end
#end
    return vec2<u32>(a, b);
}

// The natural logarithm of a positive normal number, within a unit in the last place. Minimax polynomial by S. L. Moshier
// (Cephes, single precision).
fn log_normal(x: f32) -> f32 {
    let word = bitcast<i32>(x);
    let power = (word >> 23u) - 126;
    let mantissa = bitcast<f32>((word & 0x7FFFFF) | 0x3F000000);
    let low = mantissa < 0.707106781;
    let rest = exact(select(mantissa, exact(mantissa + mantissa), low) - 1.0);
    let scale = f32(select(power, power - 1, low));
    let square = exact(rest * rest);
    var value = exact(exact(7.0376836292e-2 * rest) + -1.1514610310e-1);
    value = exact(exact(value * rest) + 1.1676998740e-1);
    value = exact(exact(value * rest) + -1.2420140846e-1);
    value = exact(exact(value * rest) + 1.4249322787e-1);
    value = exact(exact(value * rest) + -1.6668057665e-1);
    value = exact(exact(value * rest) + 2.0000714765e-1);
    value = exact(exact(value * rest) + -2.4999993993e-1);
    value = exact(exact(value * rest) + 3.3333331174e-1);
    value = exact(exact(exact(exact(value * rest) * square) + exact(scale * -2.12194440e-4)) - exact(square * 0.5));
    return exact(exact(rest + value) + exact(scale * 0.693359375));
}

// Of word `element` of a stream.
fn gumbel(stream: vec2<u32>, element: u32) -> f32 {
    let words = threefry(stream, vec2<u32>(element >> 1u, 0u));
    let word = select(words.y, words.x, (element & 1u) == 0u);
    let uniform_ = exact(f32((word >> 8u) | 1u) * 5.9604644775390625e-8); // 2^-24
    return -log_normal(-log_normal(uniform_));
}
