// Sums and maxima over a workgroup of LOCAL invocations, a power of two; all of them get the result.
//
// With SUBGROUPS within a subgroup first, and through shared memory only if there are several: where the workgroup is one
// subgroup there is no barrier at all. Without, a tree in shared memory: the same results to the last bit or two.

#if SUBGROUPS
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif

shared float reduced[LOCAL];

#if SUBGROUPS
#define REDUCE(name, within, combine) \
    float name(float value) { \
        value = within(value); \
        if (gl_NumSubgroups == 1u) return value; \
        if (subgroupElect()) reduced[gl_SubgroupID] = value; \
        barrier(); \
        value = reduced[0]; \
        for (uint i = 1u; i < gl_NumSubgroups; i++) value = combine(value, reduced[i]); \
        barrier(); \
        return value; \
    }
#else
#define REDUCE(name, within, combine) \
    float name(float value) { \
        reduced[gl_LocalInvocationID.x] = value; \
        for (uint half_ = LOCAL / 2u; half_ > 0u; half_ /= 2u) { \
            barrier(); \
            if (gl_LocalInvocationID.x < half_) \
                reduced[gl_LocalInvocationID.x] = \
                    combine(reduced[gl_LocalInvocationID.x], reduced[gl_LocalInvocationID.x + half_]); \
        } \
        barrier(); \
        value = reduced[0]; \
        barrier(); \
        return value; \
    }
#endif

float sum2(float a, float b) { return a + b; }

REDUCE(workgroup_sum, subgroupAdd, sum2)
REDUCE(workgroup_max, subgroupMax, max)
