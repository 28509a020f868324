#version 450
// Truth values, a word each, as bytes.
layout(constant_id = 0) const uint LOCAL = 64u;
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer X { uint x[]; };
layout(set = 0, binding = 1) writeonly buffer Y { uint y[]; };
layout(push_constant) uniform Push {
    uint x_start, y_start, entries;
};

void main() {
    for (uint w = gl_GlobalInvocationID.x; w < (entries + 3u) / 4u; w += gl_NumWorkGroups.x * LOCAL) {
        uint word = 0u;
        for (uint i = w * 4u; i < min(w * 4u + 4u, entries); i++) word |= (x[x_start + i] != 0u ? 1u : 0u) << (8u * (i % 4u));
        y[y_start + w] = word;
    }
}
