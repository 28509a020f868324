// What epilogues' kernels use. Every operation on floats rounds once: none is brought together with another.
#pragma METAL fp contract(off)
typedef uint u32;

inline bool is_infinite_or_nan(float x) { return (as_type<u32>(x) & 0x7f800000u) == 0x7f800000u; }
