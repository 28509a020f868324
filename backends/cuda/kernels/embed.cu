// Rows of a table by their tokens: an item of a row a thread. Ids below zero are places of the engine's tokens.
#include "weights.cuh"

extern "C" __global__ void __launch_bounds__(128)
    embed(Packing p, Matrix table, const int* token_src, const u32* tokens, u32 first, float factor, const u32* rows) {
  u32 t = blockIdx.x, item = blockIdx.y * blockDim.x + threadIdx.x;
  if (item >= p.items() || !is_true(t, rows)) return;
  int source = token_src[t];
  u32 id = (source < 0 ? tokens[-1 - source] : (u32)source) - first;
  if (id >= table.rows) return;  // in another part, or nowhere
  float values[ITEM];
  weights_of(p, table, id, item, values);
#pragma unroll
  for (int i = 0; i < ITEM; i++)
    if (item * ITEM + i < p.columns) table.y[(size_t)t * table.stride + item * ITEM + i] = factor * values[i];
}
