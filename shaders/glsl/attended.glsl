// What the kernels of attention read, as words or as texels.

#if TEXELS
layout(set = 0, binding = 0) uniform samplerBuffer q;
layout(set = 0, binding = 1) uniform usamplerBuffer keys;
layout(set = 0, binding = 2) uniform usamplerBuffer values;
vec4 q_at(uint i) { return texelFetch(q, int(i)); }
uvec4 key_at(uint i) { return texelFetch(keys, int(i)); }
uvec4 value_at(uint i) { return texelFetch(values, int(i)); }
#else
layout(set = 0, binding = 0) readonly buffer Q { vec4 q[]; };
layout(set = 0, binding = 1) readonly buffer Keys { uvec4 keys[]; };
layout(set = 0, binding = 2) readonly buffer Values { uvec4 values[]; };
vec4 q_at(uint i) { return q[i]; }
uvec4 key_at(uint i) { return keys[i]; }
uvec4 value_at(uint i) { return values[i]; }
#endif
layout(set = 0, binding = 3) readonly buffer KeyPositions { uint key_positions[]; };
layout(set = 0, binding = 4) readonly buffer Step { uint step[]; };
