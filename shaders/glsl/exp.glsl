// The exponential of numbers that are not positive, within a unit in the last place on every device; 0 below −103.
// Minimax polynomial by S. L. Moshier (Cephes, single precision).

float exp_below(float x) {
    precise float within = max(x, -103.0);
    precise float whole = roundEven(within * 1.44269504);
    precise float rest = within - whole * 0.693359375;
    rest = rest - whole * -2.12194440e-4;
    precise float value = 1.9875691500e-4;
    value = value * rest + 1.3981999507e-3;
    value = value * rest + 8.3334519073e-3;
    value = value * rest + 4.1665795894e-2;
    value = value * rest + 1.6666665459e-1;
    value = value * rest + 5.0000001201e-1;
    value = value * (rest * rest) + rest + 1.0;
    // 2ⁿ in two steps: n may lie below the exponents of normal numbers.
    int count = int(whole), half_ = count >> 1;
    value = value * intBitsToFloat((half_ + 127) << 23) * intBitsToFloat((count - half_ + 127) << 23);
    return x < -103.0 ? 0.0 : value;
}
