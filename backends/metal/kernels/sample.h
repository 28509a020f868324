// A token of a row: of the logits that a mask leaves, over a temperature, narrowed in up to four stages (top-k, top-p, min-p) to those
// that a draw may take. Only the first digit of the first stage looks at the whole row. What can still be drawn then goes to a list,
// key and index, and everything else, the noise too, is done for the list alone.
constant constexpr u32 TOP_K = 1, TOP_P = 2, MIN_P = 3, NOWHERE = 0xffffffffu;

// Where an argument begins in the inputs, a word for each pass, or NOWHERE; and what it is for all.
inline u32 argument_of(const device u32* told, const device u32* inputs, uint pass) {
  if (told[0] == NOWHERE) return told[1];
  return inputs[told[0] + pass];
}

// What a stage has found so far: the least key that it leaves, and how many keys the list has.
struct Narrowed {
  u32 edge;
  uint count;
};

template <int LOCAL, int COPIES, int MASK, bool TEMPERED>
struct Sampler {
  const device u32* logits;
  const device u32* mask;
  device u32* list;  // keys; `extent` words later, where they are
  float temperature;
  uint extent, lane;
  Counts<LOCAL, COPIES> counts;
  Masses<LOCAL, COPIES> masses;
  threadgroup atomic_uint* found;  // by all threads together

  // No number has 0.
  u32 key_at(uint i) {
    float value = as_type<float>(logits[i]), nothing = as_type<float>(0xff800000u);
    bool allowed = MASK == 0 || (mask[i / 32] >> i % 32 & 1) != 0;
    if (MASK == 1 && !allowed) value = nothing;
    if (TEMPERED) value = value / temperature;
    if (MASK == 2 && !allowed) value = nothing;
    return key_of(as_type<u32>(value), FLOATS);
  }
  float number(u32 key) { return as_type<float>(word_of(key)); }
  float weight(u32 key, u32 best) { return exp_below(number(key) - number(best)); }

  void begin(u32 value) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane == 0) atomic_store_explicit(found, value, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  // The largest key of all threads, and the least place.
  u32 most(u32 key) {
    begin(0);
    atomic_fetch_max_explicit(found, key, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return loaded(found);
  }
  u32 least(u32 place) {
    begin(NOWHERE);
    atomic_fetch_min_explicit(found, place, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return loaded(found);
  }

  void restart(u32 stage) {
    if (stage == TOP_K) counts.restart();
    else masses.restart();
  }
  void add(u32 stage, u32 key, u32 best, uint shift) {
    if (stage == TOP_K) counts.add(digit_of(key, shift));
    else masses.add(digit_of(key, shift), weight(key, best));
  }
  u32 digit(u32 stage, uint shift, float share, thread u32& wanted, thread ulong& mass) {
    if (stage == TOP_K) return counts.find(wanted) << (shift - 8);
    masses.sum();
    if (shift == 32) mass = share_of(masses.total(), share);
    return masses.find(mass) << (shift - 8);
  }

  // The keys from `edge` on, and where they are, into the list; gives how many there are.
  uint listed(u32 edge) {
    begin(0);
    for (uint i = lane; i < extent; i += LOCAL) {
      u32 key = key_at(i);
      if (key < max(edge, 1u)) continue;
      uint place = atomic_fetch_add_explicit(found, 1u, memory_order_relaxed);
      list[place] = key;
      list[place + extent] = i;
    }
    // Others will read what this one wrote.
    threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
    return loaded(found);
  }

  // The least key that leaves a share of the likeliest one's probability: of nothing all is left, of what is no share nothing.
  u32 min_p(u32 argument, u32 best) {
    float share = as_type<float>(argument);
    if (share == 0.0f) return 0;
    if (!(share > 0.0f) || is_infinite_or_nan(share)) return NOWHERE;
    // The logarithm is of normal numbers.
    bool tiny = share < 1.1754944e-38f;
    float normal = tiny ? share * 16777216.0f : share;
    return key_of(as_type<u32>(number(best) + log_normal(normal) - (tiny ? 16.635532f : 0.0f)), FLOATS);
  }

  // What a stage leaves of the keys from `given.edge` on. The first one finds a digit in the whole row, whose keys `TOP_K` has counted,
  // then makes the list.
  Narrowed narrow(u32 stage, u32 argument, u32 best, Narrowed given, bool is_first) {
    float share = as_type<float>(argument);
    u32 wanted = min(max(argument, 1u), extent), edge = stage == MIN_P ? min_p(argument, best) : 0;
    uint count = given.count, shift = 32;
    // What leaves all that there is: p from 1 on, k up to the row's length.
    bool all = stage == MIN_P || (stage == TOP_P && !(share < 1.0f)) || (stage == TOP_K && wanted == extent);
    ulong mass = 0;
    share = max(share, 0.0f);
    if (is_first) {
      if (!all) {
        if (stage == TOP_P) {
          masses.restart();
          for (uint i = lane; i < extent; i += LOCAL)
            if (u32 key = key_at(i)) add(TOP_P, key, best, shift);
        }
        edge = digit(stage, shift, share, wanted, mass);
        shift = 24;
      }
      count = listed(edge);
    }
    for (; !all && shift > 0; shift -= 8) {
      restart(stage);
      for (uint i = lane; i < count; i += LOCAL) {
        u32 key = list[i];
        if (key >= given.edge && (key & known_bits(shift)) == edge) add(stage, key, best, shift);
      }
      edge |= digit(stage, shift, share, wanted, mass);
    }
    return {max(given.edge, edge), count};
  }

  // The listed entry from `edge` on that is largest with its noise, of equal ones the first.
  u32 drawn(Stream stream, Narrowed left) {
    u32 best = 0, place = NOWHERE;
    for (uint i = lane; i < left.count; i += LOCAL) {
      u32 key = list[i], index = list[extent + i];
      if (key < left.edge) continue;
      u32 noisy = key_of(as_type<u32>(number(key) + gumbel(stream, index)), FLOATS);
      if (noisy > best || (noisy == best && index < place)) {
        best = noisy;
        place = index;
      }
    }
    u32 winner = most(best), chosen = least(best == winner ? place : NOWHERE);
    return chosen == NOWHERE ? 0 : chosen;
  }
};
