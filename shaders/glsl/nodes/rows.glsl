// Rows of the passes that a call really has: a workgroup's LOCAL invocations share a row. Workgroups are counted along y, then z.

layout(constant_id = 0) const uint LOCAL = 64u;
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer Counts { uint counts[]; };

#define LANE gl_LocalInvocationID.x

uint this_row() { return gl_WorkGroupID.z * gl_NumWorkGroups.y + gl_WorkGroupID.y; }

// Of the round that begins with pass `first` and holds at most `slots` passes of `rows` rows each.
uint true_rows(uint first, uint slots, uint rows) {
    uint passes = counts[0];
    return min(passes > first ? passes - first : 0u, slots) * rows;
}
