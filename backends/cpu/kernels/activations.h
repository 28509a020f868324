/* The activations of `activation`, `glu` and `short_conv`, by number: the order of ACTIVATIONS in lowering.py. */
#pragma once
#include "elementary.h"

enum activation { SILU, GELU_TANH, GELU, RELU, SIGMOID, NO_ACTIVATION };

INLINE vec sigmoid(vec x) {
  vec one = wasm_f32x4_const_splat(1.0f);
  return wasm_f32x4_div(one, wasm_f32x4_add(one, exp4(wasm_f32x4_neg(x))));
}

INLINE vec silu(vec x) {
  return wasm_f32x4_div(x, wasm_f32x4_add(wasm_f32x4_const_splat(1.0f), exp4(wasm_f32x4_neg(x))));
}

/* (1 + tanh u) / 2 = 1 / (1 + e^−2u): no cancellation where tanh is near −1. */
INLINE vec gelu_tanh(vec x) {
  vec cube = wasm_f32x4_mul(wasm_f32x4_mul(x, x), x);
  vec u = wasm_f32x4_mul(wasm_f32x4_const_splat(0.7978845608f), fma(wasm_f32x4_const_splat(0.044715f), cube, x));
  vec grown = exp4(wasm_f32x4_mul(u, wasm_f32x4_const_splat(-2.0f)));
  return wasm_f32x4_div(x, wasm_f32x4_add(wasm_f32x4_const_splat(1.0f), grown));
}

static float gelu(float x) {
  double upper = 0.5 * erfc_double(__builtin_fabs((double)x) * 0x1.6a09e667f3bcdp-1);
  return (float)(x * (x > 0 ? 1 - upper : upper));
}

static vec gelu4(vec x) {
  return wasm_f32x4_make(gelu(wasm_f32x4_extract_lane(x, 0)), gelu(wasm_f32x4_extract_lane(x, 1)),
                         gelu(wasm_f32x4_extract_lane(x, 2)), gelu(wasm_f32x4_extract_lane(x, 3)));
}

INLINE vec activate(vec x, enum activation activation) {
  switch (activation) {
    case SILU: return silu(x);
    case GELU_TANH: return gelu_tanh(x);
    case GELU: return gelu4(x);
    case RELU: return wasm_f32x4_max(x, ZERO);
    case SIGMOID: return sigmoid(x);
    default: return x;
  }
}
