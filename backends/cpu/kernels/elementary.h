/* exp, tanh, sine and cosine, erfc: float32 results right to about one unit in the last place.
 * Polynomials without a name are our own Chebyshev fits in float64. */
#pragma once
#include "base.h"

INLINE vec power_of_two(vec exponents) { return wasm_i32x4_shl(wasm_i32x4_add(exponents, wasm_i32x4_const_splat(127)), 23); }

/* e^r for |r| ≤ ln 2 / 2 by its Taylor series, and n with x = n · ln 2 + r. */
INLINE vec exp_rest(vec x, vec *n) {
  *n = wasm_f32x4_nearest(wasm_f32x4_mul(x, wasm_f32x4_const_splat(0x1.715476p+0f)));
  vec r = fma(*n, wasm_f32x4_const_splat(-0x1.62e4p-1f), x); /* few bits: the product is exact */
  r = fma(*n, wasm_f32x4_const_splat(-0x1.7f7d1cp-20f), r);
  vec p = wasm_f32x4_const_splat(1.0f / 5040);
  p = fma(p, r, wasm_f32x4_const_splat(1.0f / 720));
  p = fma(p, r, wasm_f32x4_const_splat(1.0f / 120));
  p = fma(p, r, wasm_f32x4_const_splat(1.0f / 24));
  p = fma(p, r, wasm_f32x4_const_splat(1.0f / 6));
  p = fma(p, r, wasm_f32x4_const_splat(0.5f));
  p = fma(p, r, wasm_f32x4_const_splat(1.0f));
  return fma(p, r, wasm_f32x4_const_splat(1.0f));
}

/* 2^n comes as two factors, so that results near overflow and subnormal ones are right as well. */
INLINE vec exp4(vec x) {
  vec n, p = exp_rest(wasm_f32x4_pmin(wasm_f32x4_pmax(x, wasm_f32x4_const_splat(-104.0f)), wasm_f32x4_const_splat(89.0f)), &n);
  vec whole = wasm_i32x4_relaxed_trunc_f32x4(n), half = wasm_i32x4_shr(whole, 1);
  return wasm_f32x4_mul(wasm_f32x4_mul(p, power_of_two(half)), power_of_two(wasm_i32x4_sub(whole, half)));
}

INLINE float exp_of(float x) { return wasm_f32x4_extract_lane(exp4(wasm_f32x4_splat(x)), 0); }

/* For −80 ≤ x ≤ 0. */
INLINE vec exp4_of_negative(vec x) {
  vec n, p = exp_rest(x, &n);
  return wasm_f32x4_mul(p, power_of_two(wasm_i32x4_relaxed_trunc_f32x4(n)));
}

/* x·P(x²) near zero, where the other form cancels; beyond, 1 − 2/(e^2|x| + 1) with the sign of x. */
INLINE vec tanh4(vec x) {
  vec sign = wasm_v128_and(x, wasm_i32x4_const_splat((int)0x80000000)), size = wasm_f32x4_abs(x);
  vec u = wasm_f32x4_mul(x, x);
  vec p = wasm_f32x4_const_splat(0.00213030856f);
  p = fma(p, u, wasm_f32x4_const_splat(-0.0081612307f));
  p = fma(p, u, wasm_f32x4_const_splat(0.0216927551f));
  p = fma(p, u, wasm_f32x4_const_splat(-0.0539448878f));
  p = fma(p, u, wasm_f32x4_const_splat(0.133331845f));
  p = fma(p, u, wasm_f32x4_const_splat(-0.333333298f));
  vec near = fma(wasm_f32x4_mul(p, u), x, x);
  vec one = wasm_f32x4_const_splat(1.0f), two = wasm_f32x4_const_splat(2.0f);
  vec far = wasm_f32x4_sub(one, wasm_f32x4_div(two, wasm_f32x4_add(exp4(wasm_f32x4_mul(size, two)), one)));
  vec is_near = wasm_f32x4_lt(size, wasm_f32x4_const_splat(0.625f));
  return wasm_v128_bitselect(near, wasm_v128_or(far, sign), is_near);
}

/* Sine and cosine of an angle up to 2²⁰ in size: π/2 is taken off in two parts, Taylor series do the rest. */
INLINE void sine_cosine(double angle, float *sine, float *cosine) {
  double n = __builtin_nearbyint(angle * 0x1.45f306dc9c883p-1);
  double r = (angle - n * 0x1.921fb544p+0) - n * 0x1.0b4611a626331p-34, u = r * r;
  double s = -1.0 / 39916800, c = -1.0 / 3628800;
  s = s * u + 1.0 / 362880, c = c * u + 1.0 / 40320;
  s = s * u - 1.0 / 5040, c = c * u - 1.0 / 720;
  s = s * u + 1.0 / 120, c = c * u + 1.0 / 24;
  s = s * u - 1.0 / 6, c = c * u - 0.5;
  s = s * u * r + r, c = c * u + 1.0;
  i32 quadrant = (i32)(long long)n & 3;
  double first = quadrant & 1 ? c : s, second = quadrant & 1 ? s : c;
  *sine = (float)(quadrant & 2 ? -first : first);
  *cosine = (float)((quadrant + 1) & 2 ? -second : second);
}

INLINE double exp_double(double x) {
  if (x < -700) return 0;
  double n = __builtin_nearbyint(x * 0x1.71547652b82fep+0), r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
  double term = 1, sum = 1;
  for (i32 i = 1; i <= 12; i++) term *= r / i, sum += term;
  union { uint64_t bits; double value; } power = {.bits = (uint64_t)(1023 + (long long)n) << 52};
  return sum * power.value;
}

/* erfc(z) for z ≥ 0: e^(−z²) times a polynomial in 2/(2 + z), fitted up to z = 10, where float32 has nothing left. */
INLINE double erfc_double(double z) {
  static const double fit[] = {
      -5.0059212292064e-07, 0.2821124974234066,  0.28181476403055256, 0.249448280496959,   0.1602886168134896,
      0.1511474363006112,   -0.20139175123686312, 0.3327878881999362, -0.5191490121078967, 0.16257236387930715,
      0.4805512265559854,   -0.6908449269941658, 0.4280912106552359,  -0.13533664322944874, 0.01790854980759677};
  if (z > 10) return 0;
  double t = 2 / (2 + z), p = 0;
  for (i32 i = 14; i >= 0; i--) p = p * t + fit[i];
  return p * exp_double(-z * z);
}
