// What is multiplied: a weight's codes and scales, and rows of x, as words or as texels.

#if TEXELS
// A software device loads words lane by lane and texels whole.
layout(set = 0, binding = 0) uniform usamplerBuffer codes;
layout(set = 0, binding = 1) uniform usamplerBuffer scales;
layout(set = 0, binding = 2) uniform samplerBuffer x;
#define SCALE_WORD(i) texelFetch(scales, int(i)).x
#else
layout(set = 0, binding = 0) readonly buffer Codes { uvec4 codes[]; };
layout(set = 0, binding = 1) readonly buffer Scales { uint scales[]; };
layout(set = 0, binding = 2) readonly buffer X { vec4 x[]; };
#endif

#include "weights.glsl"

uvec4 codes_at(uint i) {
#if TEXELS
    return texelFetch(codes, int(i));
#else
    return codes[i];
#endif
}

vec4 x_at(uint token, uint four) {
    // Columns past the matrix weigh nothing, but what lies there may be infinite.
    if (RAGGED && four >= COLUMNS / 4u) return vec4(0.0);
#if TEXELS
    return texelFetch(x, int(token * (COLUMNS / 4u) + four));
#else
    return x[token * (COLUMNS / 4u) + four];
#endif
}
