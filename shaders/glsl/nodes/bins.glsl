// Selection by radix works digit by digit, from the top: 256 bins hold what the digit's values hold together. COPIES of each
// bin keep apart invocations that would queue for one.

#ifndef BINS_GLSL
#define BINS_GLSL

layout(constant_id = 1) const uint COPIES = 1u;

#define BINS 256u
#define BLOCK 16u

uint bin_place(uint bin) { return bin * COPIES + LANE % COPIES; }

#endif
