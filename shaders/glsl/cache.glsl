// Keys and values in their pages, 16 bytes at a time: eight halves, or four floats in exact mode.
//
//     K uvec4 [page][head][vector of the head][slot]     V uvec4 [page][head][slot][vector of the head]

#if HALVES
#define PER_VECTOR 8u
#else
#define PER_VECTOR 4u
#endif

// The first and the second four values of a vector; the second are not there in exact mode.
void unpack_vector(uvec4 q, out vec4 low, out vec4 high) {
#if HALVES
    low = vec4(unpackHalf2x16(q.x), unpackHalf2x16(q.y));
    high = vec4(unpackHalf2x16(q.z), unpackHalf2x16(q.w));
#else
    low = uintBitsToFloat(q);
    high = vec4(0.0);
#endif
}

uvec4 pack_vector(vec4 low, vec4 high) {
#if HALVES
    return uvec4(packHalf2x16(low.xy), packHalf2x16(low.zw), packHalf2x16(high.xy), packHalf2x16(high.zw));
#else
    return floatBitsToUint(low);
#endif
}
