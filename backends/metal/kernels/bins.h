// Selection by radix works digit by digit, from the top: 256 bins hold what the digit's values hold together, COPIES times so that
// threads don't queue for one. A threadgroup of LOCAL threads takes a row.
constant constexpr uint BINS = 256, STRETCH = 16;
// Of the keys whose higher digits are known.
inline u32 known_bits(uint shift) { return shift == 32 ? 0u : 0xffffffffu << shift; }
inline uint digit_of(u32 key, uint shift) { return key >> (shift - 8) & 255u; }
inline u32 loaded(threadgroup atomic_uint* place) { return atomic_load_explicit(place, memory_order_relaxed); }

template <int LOCAL>
inline void clear(threadgroup atomic_uint* bins, uint count, uint lane) {
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = lane; i < count; i += LOCAL) atomic_store_explicit(&bins[i], 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// How many keys have each digit.
template <int LOCAL, int COPIES>
struct Counts {
  threadgroup atomic_uint* bins;
  threadgroup u32* stretches;
  uint lane;

  void restart() { clear<LOCAL>(bins, BINS * COPIES, lane); }
  void add(uint digit) { atomic_fetch_add_explicit(&bins[digit * COPIES + lane % COPIES], 1u, memory_order_relaxed); }
  u32 count(uint digit) {
    u32 total = 0;
    for (uint copy = 0; copy < COPIES; ++copy) total += loaded(&bins[digit * COPIES + copy]);
    return total;
  }
  // The highest digit with which at least `wanted` are counted; `wanted` becomes what is left for it.
  uint find(thread u32& wanted) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane < STRETCH) {
      u32 total = 0;
      for (uint i = 0; i < STRETCH; ++i) total += count(lane * STRETCH + i);
      stretches[lane] = total;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint stretch = STRETCH - 1;
    while (stretch > 0 && stretches[stretch] < wanted) wanted -= stretches[stretch--];
    uint digit = stretch * STRETCH + STRETCH - 1;
    for (; digit > stretch * STRETCH; --digit) {
      u32 here = count(digit);
      if (here >= wanted) break;
      wanted -= here;
    }
    return digit;
  }
};
