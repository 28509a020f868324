// The exponential of numbers that are not positive, within a unit in the last place; 0 below −103. Minimax polynomial by
// S. L. Moshier (Cephes, single precision).
inline float exp_below(float x) {
  if (x < -103.0f) return 0.0f;
  float whole = rint(x * 1.44269504f);
  float rest = x - whole * 0.693359375f;
  rest = rest - whole * -2.12194440e-4f;
  float value = 1.9875691500e-4f * rest + 1.3981999507e-3f;
  value = value * rest + 8.3334519073e-3f;
  value = value * rest + 4.1665795894e-2f;
  value = value * rest + 1.6666665459e-1f;
  value = value * rest + 5.0000001201e-1f;
  value = value * (rest * rest) + rest + 1.0f;
  // 2ⁿ in two steps: n may lie below the exponents of normal numbers.
  int power = int(whole), first = power >> 1;
  return value * as_type<float>((first + 127) << 23) * as_type<float>((power - first + 127) << 23);
}

// A share below 1 of a sum, rounded down, but not nothing.
inline ulong share_of(ulong total, float share) {
  ulong parts = ulong(u32(share * 4294967296.0f));
  ulong found = (total >> 32) * parts + ((total & 0xffffffffu) * parts >> 32);
  return found != 0 ? found : 1;
}

// The probability of each digit: fixed-point numbers, whose sums are the same in any order. A weight of 1 counts `one` · 2³², and
// `one` is a power of two. Metal adds words alone: the lower ones come first, then the higher ones.
template <int LOCAL, int COPIES>
struct Masses {
  threadgroup atomic_uint* bins;
  threadgroup ulong* stretches;
  float one;
  uint lane;

  void restart() { clear<LOCAL>(bins, 2 * BINS * COPIES, lane); }
  // `weight` is at most 1.
  void add(uint digit, float weight) {
    float scaled = weight * one, whole = floor(scaled);
    uint place = digit * COPIES + lane % COPIES;
    u32 low = u32((scaled - whole) * 4294967296.0f), high = u32(whole);
    if (low != 0) {
      u32 before = atomic_fetch_add_explicit(&bins[place], low, memory_order_relaxed);
      if (before + low < before) ++high;
    }
    if (high != 0) atomic_fetch_add_explicit(&bins[BINS * COPIES + place], high, memory_order_relaxed);
  }
  ulong mass(uint digit) {
    ulong total = 0;
    for (uint copy = 0; copy < COPIES; ++copy) {
      uint place = digit * COPIES + copy;
      total += (ulong(loaded(&bins[BINS * COPIES + place])) << 32) + loaded(&bins[place]);
    }
    return total;
  }
  // Once all have added theirs: for `total` and `find`.
  void sum() {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane < STRETCH) {
      ulong total = 0;
      for (uint i = 0; i < STRETCH; ++i) total += mass(lane * STRETCH + i);
      stretches[lane] = total;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  ulong total() {
    ulong found = 0;
    for (uint i = 0; i < STRETCH; ++i) found += stretches[i];
    return found;
  }
  // The highest digit with which at least `wanted` is there; `wanted` becomes what is left for it.
  uint find(thread ulong& wanted) {
    uint stretch = STRETCH - 1;
    while (stretch > 0 && stretches[stretch] < wanted) wanted -= stretches[stretch--];
    uint digit = stretch * STRETCH + STRETCH - 1;
    for (; digit > stretch * STRETCH; --digit) {
      ulong here = mass(digit);
      if (here >= wanted) break;
      wanted -= here;
    }
    return digit;
  }
};
