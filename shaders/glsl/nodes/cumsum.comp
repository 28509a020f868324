#version 450
#extension GL_GOOGLE_include_directive : require
// Running sums along an axis. An invocation sums a stretch of it, learns what comes before, and goes through it again.
// Sums of floats keep what they round away (Neumaier), as if they were made in twice the precision.
#include "rows.glsl"

layout(constant_id = 1) const bool FLOATS = true;

layout(set = 0, binding = 1) readonly buffer X { uint x[]; };
layout(set = 0, binding = 2) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform Push {
    uint first, slots, rows, extent;
    uint x_start, y_start, stride; // entries between neighbours of the axis
};

shared uint sums[LOCAL], losses[LOCAL];

struct Sum { uint total, loss; };

Sum plus(Sum sum, uint word) {
    if (!FLOATS) return Sum(sum.total + word, 0u);
    precise float total = uintBitsToFloat(sum.total), value = uintBitsToFloat(word);
    precise float next = total + value;
    precise float lost = abs(total) >= abs(value) ? (total - next) + value : (value - next) + total;
    precise float loss = uintBitsToFloat(sum.loss) + lost;
    // Infinities lose nothing.
    return Sum(floatBitsToUint(next), isinf(next) || isnan(next) ? 0u : floatBitsToUint(loss));
}

uint rounded(Sum sum) {
    return FLOATS ? floatBitsToUint(uintBitsToFloat(sum.total) + uintBitsToFloat(sum.loss)) : sum.total;
}

void main() {
    uint row = this_row();
    if (row >= true_rows(first, slots, rows)) return;
    uint base = row / stride * stride * extent + row % stride;
    uint stretch = (extent + LOCAL - 1u) / LOCAL;
    uint begin = min(LANE * stretch, extent), end = min(begin + stretch, extent);
    Sum sum = Sum(0u, 0u);
    for (uint i = begin; i < end; i++) sum = plus(sum, x[x_start + base + i * stride]);
    sums[LANE] = sum.total;
    losses[LANE] = sum.loss;
    barrier();
    sum = Sum(0u, 0u);
    for (uint i = 0u; i < LANE; i++) {
        sum = plus(sum, sums[i]);
        if (FLOATS) sum = plus(sum, losses[i]);
    }
    for (uint i = begin; i < end; i++) {
        sum = plus(sum, x[x_start + base + i * stride]);
        y[y_start + base + i * stride] = rounded(sum);
    }
}
