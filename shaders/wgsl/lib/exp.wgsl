// The exponential of numbers that are not positive, within a unit in the last place on every device; 0 below −103.
// Minimax polynomial by S. L. Moshier (Cephes, single precision).
fn exp_below(x: f32) -> f32 {
    let within = max(x, -103.0);
    let whole = round(exact(within * 1.44269504));
    var rest = exact(within - exact(whole * 0.693359375));
    rest = exact(rest - exact(whole * -2.12194440e-4));
    var value = exact(exact(1.9875691500e-4 * rest) + 1.3981999507e-3);
    value = exact(exact(value * rest) + 8.3334519073e-3);
    value = exact(exact(value * rest) + 4.1665795894e-2);
    value = exact(exact(value * rest) + 1.6666665459e-1);
    value = exact(exact(value * rest) + 5.0000001201e-1);
    value = exact(exact(exact(value * exact(rest * rest)) + rest) + 1.0);
    // 2ⁿ in two steps: n may lie below the exponents of normal numbers.
    let count = i32(whole);
    let half_ = count >> 1u;
    value = exact(exact(value * bitcast<f32>((half_ + 127) << 23u)) * bitcast<f32>((count - half_ + 127) << 23u));
    return select(value, 0.0, x < -103.0);
}
