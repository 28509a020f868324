// Values from the engine's tokens and into them, and what an epilogue's end does to its outputs.
#include "common.cuh"

// What lies in each entry's slot of the engine's tokens, in place of what the passes gave; a slot past the end leaves that.
extern "C" __global__ void __launch_bounds__(64)
    take_kept(u32* given, const u32* slots, const u32* tokens, u32 room, u32 each, const u32* passes) {
  u32 entry = blockIdx.x * 64 + threadIdx.x;
  if (entry < *passes * each && slots[entry] < room) given[entry] = tokens[slots[entry]];
}

// Each entry of the passes' values into its slot of the engine's tokens; a slot past the end keeps nothing.
extern "C" __global__ void __launch_bounds__(64)
    keep_token(const u32* chosen, const u32* slots, u32* tokens, u32 room, u32 each, const u32* passes) {
  u32 entry = blockIdx.x * 64 + threadIdx.x;
  if (entry < *passes * each && slots[entry] < room) tokens[slots[entry]] = chosen[entry];
}

// Truth values, a word each, as bytes.
extern "C" __global__ void __launch_bounds__(64) pack_bytes(const u32* x, u32* y, u32 entries) {
  for (u32 w = blockIdx.x * 64 + threadIdx.x; w < (entries + 3) / 4; w += gridDim.x * 64) {
    u32 word = 0;
    for (u32 i = w * 4; i < min(w * 4 + 4, entries); i++) word |= (u32)(x[i] != 0) << 8 * (i % 4);
    y[w] = word;
  }
}
