// Products of rows with the matrices of their experts, which lie below one another in one matrix.
#include "product.cuh"

struct Experts {
  const float* x;
  const u32 *experts, *order, *starts;  // order and starts are null where rows come alone
  const u32* rows;                      // the true number, or null where there are `most`
  u32 most, outputs, chosen, sharing, count;  // of an expert; of a row; those of x that share its row; of all
  u32 splits, first;                    // row of the matrix's part
};

// TOKENS places of one expert by a block: each a row of the step and which of its experts.
extern "C" __global__ void __launch_bounds__(256, 2) expert_linear(Packing p, Matrix m, Experts e) {
  __shared__ alignas(16) char room[ROOM];
  __shared__ float partial[WARPS * TOKENS * ROWS];
  u32 places[TOKENS], expert, there = (e.rows == nullptr ? e.most : *e.rows) * e.chosen, found = 0;
  if (e.order == nullptr) {
    if (blockIdx.y >= there) return;
    places[0] = blockIdx.y, expert = e.experts[blockIdx.y], found = 1;
  } else {
    // The tile along y, counting those of each expert.
    u32 tile = blockIdx.y;
    for (expert = 0; expert < e.count; expert++) {
      u32 tiles = (e.starts[expert + 1] - e.starts[expert] + TOKENS - 1) / TOKENS;
      if (tile < tiles) break;
      tile -= tiles;
    }
    if (expert == e.count) return;
    u32 at = e.starts[expert] + tile * TOKENS;
    found = min((u32)TOKENS, e.starts[expert + 1] - at);
#pragma unroll
    for (u32 t = 0; t < TOKENS; t++) places[t] = t < found ? e.order[at + t] : 0;
  }
  const float* x[TOKENS];
#pragma unroll
  for (u32 t = 0; t < TOKENS; t++) x[t] = t < found ? e.x + (size_t)(places[t] / e.sharing) * p.columns : nullptr;
  u32 begin = expert * e.outputs, warp = threadIdx.x >> 5, lane = threadIdx.x & 31, split = warp % e.splits;
  // Row groups of the part that have rows of this expert.
  u32 low = max(begin, e.first) - e.first, high = min(begin + e.outputs, e.first + m.rows);
  if (high <= e.first + low) return;
  high -= e.first;
  u32 group = low / ROWS + blockIdx.x * (WARPS / e.splits) + warp / e.splits, width = p.blocks() * BLOCK;
  if ((low / ROWS + blockIdx.x * (WARPS / e.splits)) * ROWS >= high) return;
  Brought brought(room);
  float sums[TOKENS] = {};
  for (u32 at = 0; at < width; at += STRETCH) {
    Stretch stretch = {at, min(width - at, (u32)(STRETCH))};
    __syncthreads();
    bring(brought, x, stretch, p.columns);
    __syncthreads();
    if (group * ROWS < high) add_group(brought, p, m, stretch, group, split, e.splits, sums);
  }
  join(sums, split, e.splits, partial);
  u32 row = group * ROWS + lane;
  if (split != 0 || lane >= ROWS || row < low || row >= high) return;
  u32 output = row + e.first - begin;
#pragma unroll
  for (u32 t = 0; t < TOKENS; t++)
    if (t < found) m.y[(size_t)places[t] * e.outputs + output] = sums[t] + (m.bias == nullptr ? 0.0f : m.bias[row + e.first]);
}
