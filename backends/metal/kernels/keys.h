// Numbers as keys in the same order; −0 and 0 have one key.
constant constexpr u32 FLOATS = 0, SIGNED = 1, UNSIGNED = 2;
inline u32 key_of(u32 given, u32 type) {
  if (type == UNSIGNED) return given;
  if (type == SIGNED) return given ^ 0x80000000u;
  u32 word = given == 0x80000000u ? 0u : given;
  return word >> 31 != 0 ? ~word : word | 0x80000000u;
}
// Of a float.
inline u32 word_of(u32 key) { return key >> 31 != 0 ? key & 0x7fffffffu : ~key; }
