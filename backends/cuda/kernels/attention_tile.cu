// Attention of sequences of several rows on tensor cores, for keys and values in halves and heads WIDTH wide, a multiple of 64. A warp
// has 16 queries, those of a few rows that share a key-value head, and goes over the keys 16 at a time by itself: nothing is shared
// between warps but the queries' room.
//
// Queries and weights of the softmax become two halves each, high + low: what is lost is less than a float's rounding of a sum. Lane
// 4g + c has eight columns of key g in a product with queries, and in one with values columns 8g … 8g + 7 of four keys, as they lie
// in memory: the columns that an mma takes are free, if both sides agree.
#define HALVES 1
#include "attention.cuh"

#define WARPS 4
#define TILE 16                // queries of a warp, and keys at a time
#define QUARTERS (WIDTH / 32)  // 32 columns of a query
#define EIGHTHS (WIDTH / 64)   // 64 columns of a value

// Where a query's column lies, so that a quarter of a warp, which reads 64 bytes of two queries, visits all banks once.
__device__ __forceinline__ u32 place_of(u32 query, u32 column) { return query * WIDTH + (column ^ query % 2 * 32); }

struct Halved {
  u32 high[4], low[4];
};
// As mma takes a: values[0, 1] are of the first eight rows, [2, 3] of the others, and so on.
__device__ __forceinline__ Halved halved(const float values[8]) {
  Halved found;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    float x = values[2 * i], y = values[2 * i + 1];
    u16 first = float_to_half(x), second = float_to_half(y);
    found.high[i] = first | (u32)second << 16;
    found.low[i] = float_to_half(x - half_to_float(first)) | (u32)float_to_half(y - half_to_float(second)) << 16;
  }
  return found;
}

// What decides which keys a row sees, read once.
struct Row {
  u32 row, index, position;
  bool there;
  __device__ __forceinline__ Row(const Step& step, u32 row, bool there)
      : row(row), index(there ? step.row_index[row] : 0), position(there ? step.positions[row] : 0), there(there) {}
  __device__ __forceinline__ bool sees(const Step& step, const Attention& a, const Keys& keys, const Key& key, u32 j) const {
    if (!there || !key.written || (key.fresh && j > index)) return false;
    if (a.window && (int)(position - a.key_positions[key.place]) >= (int)a.window) return false;
    if (step.mask_starts == nullptr || step.mask_starts[keys.sequence] == 0) return true;
    const u32* words = step.mask + step.mask_starts[keys.sequence] - 1;
    return words[(row - keys.first_row) * keys.entries + j / a.page] >> j % a.page & 1;
  }
};

extern "C" __global__ void __launch_bounds__(32 * WARPS, 1) attention_tile(Step step, Attention a, float* y) {
  __shared__ alignas(16) u16 room[2][WARPS][TILE * WIDTH];  // the queries' high and low halves
  u32 heads = a.heads / a.kv_heads, together = TILE / heads, tile = blockIdx.x * WARPS + threadIdx.x / 32, rows = 0, s;
  for (s = 0; s < step.counts[SEQUENCES]; s++) {
    rows = step.query_starts[s + 1] - step.query_starts[s];
    u32 tiles = rows == 1 ? 0 : (rows + together - 1) / together;
    if (tile < tiles) break;
    tile -= tiles;
  }
  if (s == step.counts[SEQUENCES]) return;
  Keys keys(step, s);
  u32 lane = threadIdx.x & 31, g = lane / 4, c = lane % 4, warp = threadIdx.x / 32, kv_head = blockIdx.y;
  u32 first = keys.first_row + tile * together, count = min(together, rows - tile * together) * heads;
  u16 *high = room[0][warp], *low = room[1][warp];
  for (u32 i = lane; i < TILE * WIDTH; i += 32) {
    u32 query = i / WIDTH, head = kv_head * heads + query % heads;
    float value = query < count ? a.q[((size_t)(first + query / heads) * a.heads + head) * WIDTH + i % WIDTH] * a.scale : 0.0f;
    u16 rounded = float_to_half(value);
    u32 place = place_of(query, i % WIDTH);
    high[place] = rounded, low[place] = float_to_half(value - half_to_float(rounded));
  }
  __syncwarp();
  const Row own[2] = {Row(step, first + g / heads, g < count), Row(step, first + (g + 8) / heads, g + 8 < count)};
  float found[8 * EIGHTHS][4] = {}, peaks[2] = {-infinity(), -infinity()}, totals[2] = {0.0f, 0.0f};
  u32 total = keys.entries * a.page;
  for (u32 base = 0; base < total; base += TILE) {
    // Keys 2c, 2c + 1, 2c + 8 and 2c + 9, whose scores this lane has, for rows g and g + 8.
    Key four[4];
    bool visible[2][4], any = false;
#pragma unroll
    for (int n = 0; n < 4; n++) {
      u32 j = base + 2 * c + n / 2 * 8 + n % 2;
      four[n] = j < total ? key_at(step, a, keys, j) : Key{0, false, false};
#pragma unroll
      for (int r = 0; r < 2; r++) {
        visible[r][n] = own[r].sees(step, a, keys, four[n], j);
        any = any || visible[r][n];
      }
    }
    if (!__any_sync(ALL_LANES, any)) continue;
    float scores[2][4] = {};
#pragma unroll
    for (int n = 0; n < 2; n++) {
      u32 j = base + 8 * n + g;
      // A place that nobody may have written: what comes of it is thrown away.
      u32 place = j < total ? key_at(step, a, keys, j).place : 0;
      size_t at = ((size_t)(place / a.page) * a.kv_heads + kv_head) * (WIDTH / 8) * a.page + place % a.page;
#pragma unroll
      for (int quarter = 0; quarter < QUARTERS; quarter++) {
        uint4 words = __ldg((const uint4*)a.keys + at + (size_t)(4 * quarter + c) * a.page);
        const u32 k[2][2] = {{words.x, words.y}, {words.z, words.w}};
        u32 from = place_of(g, 32 * quarter + 8 * c);
        uint4 x[2] = {*(const uint4*)(high + from), *(const uint4*)(high + from + 8 * WIDTH)};
        uint4 z[2] = {*(const uint4*)(low + from), *(const uint4*)(low + from + 8 * WIDTH)};
        const u32 q[4][4] = {{x[0].x, x[1].x, x[0].y, x[1].y}, {x[0].z, x[1].z, x[0].w, x[1].w},
                             {z[0].x, z[1].x, z[0].y, z[1].y}, {z[0].z, z[1].z, z[0].w, z[1].w}};
#pragma unroll
        for (int part = 0; part < 4; part++) mma_m16n8k16(scores[n], q[part], k[part % 2]);
      }
    }
    float weights[8];  // as mma takes them: rows g and g + 8 of keys 2c, 2c + 1, then of those eight later
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float mine[4], peak = peaks[r], sum = 0.0f;
#pragma unroll
      for (int n = 0; n < 4; n++) {
        mine[n] = visible[r][n] ? capped(a, scores[n / 2][2 * r + n % 2]) : -infinity();
        peak = fmaxf(peak, mine[n]);
      }
      peak = fmaxf(peak, __shfl_xor_sync(ALL_LANES, peak, 1));
      peak = fmaxf(peak, __shfl_xor_sync(ALL_LANES, peak, 2));
      float by = peak == -infinity() ? 1.0f : expf(peaks[r] - peak);
#pragma unroll
      for (int n = 0; n < 4; n++) {
        float weight = mine[n] == -infinity() ? 0.0f : expf(mine[n] - peak);
        weights[n / 2 * 4 + 2 * r + n % 2] = weight;
        sum += weight;
      }
      sum += __shfl_xor_sync(ALL_LANES, sum, 1);
      sum += __shfl_xor_sync(ALL_LANES, sum, 2);
      totals[r] = totals[r] * by + sum, peaks[r] = peak;
#pragma unroll
      for (int d = 0; d < 8 * EIGHTHS; d++) found[d][2 * r] *= by, found[d][2 * r + 1] *= by;
    }
    Halved p = halved(weights);
#pragma unroll
    for (int eighth = 0; eighth < EIGHTHS; eighth++) {
      u32 v[4][4];  // of four keys, eight columns each; zeros for one that nobody wrote
#pragma unroll
      for (int n = 0; n < 4; n++) {
        u32 place = four[n].place;
        size_t row = ((size_t)(place / a.page) * a.kv_heads + kv_head) * a.page + place % a.page;
        uint4 words = four[n].written ? __ldg((const uint4*)((const u16*)a.values + row * WIDTH + 64 * eighth) + g) : make_uint4(0, 0, 0, 0);
        v[n][0] = words.x, v[n][1] = words.y, v[n][2] = words.z, v[n][3] = words.w;
      }
#pragma unroll
      for (int i = 0; i < 8; i++) {
        const u32 selector = i % 2 ? 0x7632 : 0x5410;
        const u32 b[2] = {__byte_perm(v[0][i / 2], v[1][i / 2], selector), __byte_perm(v[2][i / 2], v[3][i / 2], selector)};
        mma_m16n8k16(found[8 * eighth + i], p.high, b);
        mma_m16n8k16(found[8 * eighth + i], p.low, b);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < 2; r++) {
    u32 query = g + 8 * r, head = kv_head * heads + query % heads;
    if (query >= count) continue;
    float most = a.sinks == nullptr ? peaks[r] : fmaxf(peaks[r], a.sinks[head]), by = most == -infinity() ? 0.0f : expf(peaks[r] - most);
    float whole = totals[r] * by + (a.sinks == nullptr ? 0.0f : expf(a.sinks[head] - most));
    float* to = y + ((size_t)(first + query / heads) * a.heads + head) * WIDTH;
#pragma unroll
    for (int d = 0; d < 8 * EIGHTHS; d += 4)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        float four[4];
#pragma unroll
        for (int n = 0; n < 4; n++) four[n] = whole > 0.0f ? found[d + n][2 * r + i] * by / whole : 0.0f;
        *(float4*)(to + d / 8 * 64 + 8 * (2 * c + i) + d % 8) = make_float4(four[0], four[1], four[2], four[3]);
      }
  }
}
