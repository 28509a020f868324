// Activations of gated units, by number: 1 silu, 2 gelu by tanh, 3 gelu by erf, 4 relu, 5 sigmoid. For a float and for four at once.

#define ACTIVATIONS(T) \
    /* Drivers may compute tanh from two exponentials, which overflow; past 10 it is 1 in float32. */ \
    T safe_tanh(T x) { return tanh(clamp(x, T(-10.0), T(10.0))); } \
    /* Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: within 1.5e-7. */ \
    T erf(T x) { \
        T a = abs(x), t = 1.0 / (1.0 + 0.3275911 * a); \
        T p = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))); \
        return sign(x) * (1.0 - p * exp(-a * a)); \
    } \
    T activate(uint which, T x) { \
        if (which == 1u) return x / (1.0 + exp(-x)); \
        if (which == 2u) return 0.5 * x * (1.0 + safe_tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); \
        if (which == 3u) return 0.5 * x * (1.0 + erf(x * 0.7071067811865476)); \
        if (which == 5u) return 1.0 / (1.0 + exp(-x)); \
        return max(x, T(0.0)); \
    }

ACTIVATIONS(float)
ACTIVATIONS(vec4)
