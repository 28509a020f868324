// Selection by radix works digit by digit, from the top: 256 bins hold what the digit's values hold together. COPIES of each
// bin keep apart invocations that would queue for one.
const BINS = 256u;
const BLOCK = 16u;

fn bin_place(bin: u32) -> u32 { return bin * COPIES + lane % COPIES; }
