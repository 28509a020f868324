// Activations of gated units, by name: for a float or for four at once.

fn safe_tanh(x: ${T}) -> ${T} {
    // Drivers may compute tanh from two exponentials, which overflow; past 10 it is 1 in float32.
    return tanh(clamp(x, ${T}(-10.0), ${T}(10.0)));
}

#if ACT == "gelu"
// Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: within 1.5e-7.
fn erf(x: ${T}) -> ${T} {
    let a = abs(x);
    let t = 1.0 / (1.0 + 0.3275911 * a);
    let p = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    return sign(x) * (1.0 - p * exp(-a * a));
}
#end

fn activate(x: ${T}) -> ${T} {
#if ACT == "silu"
    return x / (1.0 + exp(-x));
#elif ACT == "gelu_tanh"
    return 0.5 * x * (1.0 + safe_tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
#elif ACT == "gelu"
    return 0.5 * x * (1.0 + erf(x * 0.7071067811865476));
#elif ACT == "sigmoid"
    return 1.0 / (1.0 + exp(-x));
#else
    return max(x, ${T}(0.0));
#end
}
