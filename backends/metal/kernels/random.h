// Draws: Threefry-2x32-20 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) and Gumbel noise, the same bits
// on every device.
struct Stream {
  u32 x, y;
};
constant constexpr u32 TURNS[8] = {13, 15, 26, 6, 17, 29, 16, 24};

inline Stream threefry(Stream key, Stream counter) {
  u32 keys[3] = {key.x, key.y, key.x ^ key.y ^ 0x1BD11BDAu};
  u32 a = counter.x + key.x, b = counter.y + key.y;
  for (uint i = 0; i < 20; ++i) {
    a += b;
    b = ((b << TURNS[i % 8]) | (b >> (32 - TURNS[i % 8]))) ^ a;
    if (i % 4 == 3) {
      a += keys[(i / 4 + 1) % 3];
      b += keys[(i / 4 + 2) % 3] + i / 4 + 1;
    }
  }
  return {a, b};
}

// The natural logarithm of a positive normal number, within a unit in the last place. Minimax polynomial by S. L. Moshier
// (Cephes, single precision).
inline float log_normal(float x) {
  int word = as_type<int>(x), power = (word >> 23) - 126;
  float mantissa = as_type<float>((word & 0x7fffff) | 0x3f000000);
  bool low = mantissa < 0.707106781f;
  float rest = (low ? mantissa + mantissa : mantissa) - 1.0f, scale = float(low ? power - 1 : power);
  float square = rest * rest, value = 7.0376836292e-2f;
  value = value * rest + -1.1514610310e-1f;
  value = value * rest + 1.1676998740e-1f;
  value = value * rest + -1.2420140846e-1f;
  value = value * rest + 1.4249322787e-1f;
  value = value * rest + -1.6668057665e-1f;
  value = value * rest + 2.0000714765e-1f;
  value = value * rest + -2.4999993993e-1f;
  value = value * rest + 3.3333331174e-1f;
  value = value * rest * square;
  value = value + scale * -2.12194440e-4f - square * 0.5f;
  return rest + value + scale * 0.693359375f;
}

// Of word `element` of a stream.
inline float gumbel(Stream stream, u32 element) {
  Stream words = threefry(stream, {element >> 1, 0u});
  u32 word = (element & 1) != 0 ? words.y : words.x;
  float uniform = float(word >> 8 | 1) * 5.9604644775390625e-8f;  // 2^-24
  return -log_normal(-log_normal(uniform));
}
