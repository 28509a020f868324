// Each row changed at its indices, in their order. Every entry belongs to one thread, which alone changes it: the result is
// that of one index after the other, also for sums of floats.
#include "nodes.cuh"

struct Params {
  u32 extent, x, indices, updates, y;  // where each begins
  u32 count, begin, end;               // indices of a row, and which of them this launch takes
  u32 update_entries;                  // how many entries share an update
};

__device__ __forceinline__ u32 changed(u32 old, u32 update) {
  if (MODE == 0) return update;
  if (MODE == 1 && TYPE == FLOATS) return __float_as_uint(__fadd_rn(__uint_as_float(old), __uint_as_float(update)));
  if (MODE == 1) return old + update;
  bool less = key_of(update, TYPE) < key_of(old, TYPE), more = key_of(update, TYPE) > key_of(old, TYPE);
  return (MODE == 2 ? less : more) ? update : old;
}

extern "C" __global__ void __launch_bounds__(LOCAL, 1)
    scatter(Round round, Params p, const u32* x, const u32* indices, const u32* updates, u32* y) {
  u32 row = round.row();
  if (row == ~0u) return;
  u32* own = y + p.y + (size_t)row * p.extent;
  if (IS_FIRST)
    for (u32 i = threadIdx.x; i < p.extent; i += LOCAL) own[i] = x[p.x + (size_t)row * p.extent + i];
  for (u32 j = p.begin; j < p.end; j++) {
    // A negative index is out of range as well.
    u32 entry = row * p.count + j, index = indices[p.indices + entry];
    if (index < p.extent && index % LOCAL == threadIdx.x) own[index] = changed(own[index], updates[p.updates + entry / p.update_entries]);
  }
}
