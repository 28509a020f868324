// Recurrent states: tails of inputs, and the gated delta rule.
#include "recurrent.cuh"

// The last `length` rows of each sequence over their places of its tail.
extern "C" __global__ void __launch_bounds__(128)
    tail_append(Spans spans, const float* x, float* tail, u32 columns, u32 length) {
  u32 column = blockIdx.y * blockDim.x + threadIdx.x, sequence = blockIdx.z;
  if (column >= columns || sequence >= spans.counts[1]) return;
  Sequence s(spans, sequence);
  if (blockIdx.x >= s.end - s.first) return;
  u32 row = s.end - 1 - blockIdx.x;
  tail[((size_t)s.home * length + (s.start + row - s.first) % length) * columns + column] = x[(size_t)row * columns + column];
}

struct Delta {
  const float *qkv, *a, *b, *gates;  // gates: each head's rate, and then what is added before it applies
  const float *qkv_tail, *a_tail, *b_tail;
  float *y, *state;
  u32 key_heads, heads, key_dim, width, length, tiled;
  float eps;
};

#define COLUMNS 32  // of a head's state that a block has
#define PARTS 4     // warps, which share the rows of each column
#define MOST_KEYS 256

// A block for each 32 columns of a head's matrix, in every sequence: the matrix stays in shared memory over all tokens.
extern "C" __global__ void __launch_bounds__(COLUMNS* PARTS) gated_delta(Spans spans, Delta d) {
  __shared__ float s[MOST_KEYS * COLUMNS];
  __shared__ float q[MOST_KEYS];
  __shared__ float k[MOST_KEYS];
  __shared__ float shares[2 * PARTS * COLUMNS];
  u32 sequence = blockIdx.z, head = blockIdx.y, lane = threadIdx.x % COLUMNS, part = threadIdx.x / COLUMNS;
  u32 column = blockIdx.x * COLUMNS + lane;
  if (sequence >= spans.counts[1]) return;
  Sequence at(spans, sequence);
  bool there = column < d.width;
  u32 key_head = d.tiled ? head % d.key_heads : head / (d.heads / d.key_heads);
  u32 keys = d.key_heads * d.key_dim, all = 2 * keys + d.heads * d.width;
  size_t matrix = (size_t)d.key_dim * d.width, own = head * matrix + column;
  float* state = d.state + own;
  for (u32 i = part; i < d.key_dim; i += PARTS)
    s[i * COLUMNS + lane] = there && at.source ? state[at.source * d.heads * matrix + (size_t)i * d.width] : 0.0f;
  u32 tokens = at.replayed + at.end - at.first;
  for (u32 n = 0; n <= tokens; n++) {
    if (at.fold && n == at.folded && there)
      for (u32 i = part; i < d.key_dim; i += PARTS) state[at.fold * d.heads * matrix + (size_t)i * d.width] = s[i * COLUMNS + lane];
    if (n == tokens) break;
    bool replayed = n < at.replayed;
    size_t row = replayed ? (size_t)at.home * d.length + (at.start - at.replayed + n) % d.length : at.first + n - at.replayed;
    const float *qkv = (replayed ? d.qkv_tail : d.qkv) + row * all, *a = replayed ? d.a_tail : d.a, *b = replayed ? d.b_tail : d.b;
    for (u32 i = threadIdx.x; i < d.key_dim; i += COLUMNS * PARTS)
      q[i] = qkv[key_head * d.key_dim + i], k[i] = qkv[keys + key_head * d.key_dim + i];
    __syncthreads();
    float q_squares = 0.0f, k_squares = 0.0f;
    for (u32 i = lane; i < d.key_dim; i += 32) q_squares += q[i] * q[i], k_squares += k[i] * k[i];
    float q_by = 1.0f / (sqrtf(warp_sum(q_squares) + d.eps) * sqrtf((float)d.key_dim)), k_by = 1.0f / sqrtf(warp_sum(k_squares) + d.eps);
    float x = a[row * d.heads + head] + d.gates[d.heads + head], softplus = fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
    float keep = expf(d.gates[head] * softplus), learn = sigmoid(b[row * d.heads + head]), known = 0.0f, found = 0.0f;
    for (u32 i = part; i < d.key_dim; i += PARTS) {
      float kept = s[i * COLUMNS + lane] * keep;
      s[i * COLUMNS + lane] = kept;
      known += k[i] * k_by * kept;
    }
    shares[part * COLUMNS + lane] = known;
    __syncthreads();
    known = 0.0f;
    for (u32 i = 0; i < PARTS; i++) known += shares[i * COLUMNS + lane];
    float wanted = there ? learn * (qkv[2 * keys + head * d.width + column] - known) : 0.0f;
    for (u32 i = part; i < d.key_dim; i += PARTS) {
      s[i * COLUMNS + lane] += k[i] * k_by * wanted;
      found += q[i] * q_by * s[i * COLUMNS + lane];
    }
    shares[(PARTS + part) * COLUMNS + lane] = found;
    __syncthreads();
    if (part == 0 && there && !replayed) {
      found = 0.0f;
      for (u32 i = 0; i < PARTS; i++) found += shares[(PARTS + i) * COLUMNS + lane];
      d.y[row * d.heads * d.width + head * d.width + column] = found;
    }
  }
  if (there)
    for (u32 i = part; i < d.key_dim; i += PARTS) state[at.home * d.heads * matrix + (size_t)i * d.width] = s[i * COLUMNS + lane];
}
