// Normalisations: a block for each row, or for each of its groups.
#include "common.cuh"

#define MOST_WARPS 32

extern "C" __global__ void __launch_bounds__(512)
    rms_norm(const float* x, const float* weight, float* y, u32 width, float eps, float offset, const u32* rows) {
  __shared__ float room[MOST_WARPS];
  if (!is_true(blockIdx.x, rows)) return;
  size_t first = ((size_t)blockIdx.x * gridDim.y + blockIdx.y) * width;
  float squares = 0.0f;
  for (u32 i = threadIdx.x; i < width; i += blockDim.x) squares += x[first + i] * x[first + i];
  float root = 1.0f / sqrtf(block_sum(squares, room) / width + eps);
  for (u32 i = threadIdx.x; i < width; i += blockDim.x) y[first + i] = x[first + i] * root * (weight[i] + offset);
}

extern "C" __global__ void __launch_bounds__(512)
    add_rms_norm(const float* x, const float* residual, const float* weight, float* sum, float* y, u32 width, float eps,
                 float offset, const u32* rows) {
  __shared__ float room[MOST_WARPS];
  if (!is_true(blockIdx.x, rows)) return;
  size_t first = (size_t)blockIdx.x * width;
  float squares = 0.0f;
  for (u32 i = threadIdx.x; i < width; i += blockDim.x) {
    float total = x[first + i] + residual[first + i];
    sum[first + i] = total;
    squares += total * total;
  }
  float root = 1.0f / sqrtf(block_sum(squares, room) / width + eps);
  for (u32 i = threadIdx.x; i < width; i += blockDim.x) y[first + i] = sum[first + i] * root * (weight[i] + offset);
}

// bias may be null.
extern "C" __global__ void __launch_bounds__(512)
    layer_norm(const float* x, const float* weight, const float* bias, float* y, u32 width, float eps, const u32* rows) {
  __shared__ float room[MOST_WARPS];
  if (!is_true(blockIdx.x, rows)) return;
  size_t first = (size_t)blockIdx.x * width;
  float total = 0.0f, squares = 0.0f;
  for (u32 i = threadIdx.x; i < width; i += blockDim.x) total += x[first + i];
  float mean = block_sum(total, room) / width;
  for (u32 i = threadIdx.x; i < width; i += blockDim.x) squares += (x[first + i] - mean) * (x[first + i] - mean);
  float root = 1.0f / sqrtf(block_sum(squares, room) / width + eps);
  for (u32 i = threadIdx.x; i < width; i += blockDim.x)
    y[first + i] = (x[first + i] - mean) * root * weight[i] + (bias == nullptr ? 0.0f : bias[i]);
}
