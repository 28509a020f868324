// Draws: Threefry-2x32-20 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) and Gumbel noise, the same
// bits on every device.

uvec2 threefry(uvec2 key, uvec2 counter) {
    const uint turns[8] = uint[](13u, 15u, 26u, 6u, 17u, 29u, 16u, 24u);
    uint keys[3] = uint[](key.x, key.y, key.x ^ key.y ^ 0x1BD11BDAu);
    uvec2 c = counter + key;
    for (uint i = 0u; i < 20u; i++) {
        uint turn = turns[i % 8u];
        c.x += c.y;
        c.y = ((c.y << turn) | (c.y >> (32u - turn))) ^ c.x;
        if (i % 4u == 3u) {
            uint injection = i / 4u + 1u;
            c.x += keys[injection % 3u];
            c.y += keys[(injection + 1u) % 3u] + injection;
        }
    }
    return c;
}

// The natural logarithm of a positive normal number, within a unit in the last place. Minimax polynomial by S. L. Moshier
// (Cephes, single precision).
float log_normal(float x) {
    int word = floatBitsToInt(x), power = (word >> 23) - 126;
    precise float mantissa = intBitsToFloat((word & 0x7FFFFF) | 0x3F000000);
    bool low = mantissa < 0.707106781;
    precise float rest = (low ? mantissa + mantissa : mantissa) - 1.0;
    precise float scale = float(low ? power - 1 : power);
    precise float square = rest * rest;
    precise float value = 7.0376836292e-2;
    value = value * rest + -1.1514610310e-1;
    value = value * rest + 1.1676998740e-1;
    value = value * rest + -1.2420140846e-1;
    value = value * rest + 1.4249322787e-1;
    value = value * rest + -1.6668057665e-1;
    value = value * rest + 2.0000714765e-1;
    value = value * rest + -2.4999993993e-1;
    value = value * rest + 3.3333331174e-1;
    value = value * rest * square + scale * -2.12194440e-4 - square * 0.5;
    precise float result = (rest + value) + scale * 0.693359375;
    return result;
}

// Of word `element` of a stream.
float gumbel(uvec2 stream, uint element) {
    uvec2 words = threefry(stream, uvec2(element >> 1, 0u));
    uint word = (element & 1u) == 0u ? words.x : words.y;
    precise float uniform_ = float((word >> 8) | 1u) * 5.9604644775390625e-8; // 2^-24
    return -log_normal(-log_normal(uniform_));
}
