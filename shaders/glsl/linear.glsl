// What the kernels of `linear` are bound to and told: the same for the one that multiplies in registers (linear.comp) and the
// one that shares tiles (linear_tile.comp).

#include "operands.glsl"
layout(set = 0, binding = 3) readonly buffer Bias { float bias[]; };
layout(set = 0, binding = 4) writeonly buffer Y0 { float y0[]; };
layout(set = 0, binding = 5) writeonly buffer Y1 { float y1[]; };
layout(set = 0, binding = 6) writeonly buffer Y2 { float y2[]; };
layout(set = 0, binding = 7) readonly buffer Step { uint step[]; };

// Of each matrix: where its codes (uvec4s) and scales (words) begin, its rows, the workgroups up to its end, the code that
// stands for zero, and where its bias begins.
struct Matrix {
    uint codes;
    uint scales;
    uint rows;
    uint end;
    float zero;
    uint bias;
};
layout(push_constant) uniform Push {
    Matrix matrix[3];
    uint width;   // values of a row of y; 0 for as many as the matrix has rows
    uint place;   // where the matrix's rows begin in a row of y
    uint first;   // rows of x before those that are bound
    uint room;    // rows of y that are bound
    uint counter; // the word of the step that has the number of true rows, or NO_COUNTER
};
const uint NO_COUNTER = 0xFFFFFFFFu;

#include "activations.glsl"

// Which matrix a workgroup has a part of. A gate and what it lets through go together.
uint matrix_of(uint workgroup) {
    return ACT > 0u || workgroup < matrix[0].end ? 0u : (workgroup < matrix[1].end ? 1u : 2u);
}

uint workgroups_before(uint which) {
    return which == 0u ? 0u : matrix[which - 1u].end;
}

// Rows of y that are true, of those that are bound.
uint true_rows() {
    return counter == NO_COUNTER ? room : min(room, max(step[counter], first) - first);
}

void write(uint which, uint token, uint row, float value) {
    uint at = token * (width == 0u ? matrix[which].rows : width) + place + row;
    if (BIAS) value += bias[matrix[which].bias + place + row];
    if (which == 0u) y0[at] = value;
    else if (which == 1u) y1[at] = value;
    else y2[at] = value;
}
