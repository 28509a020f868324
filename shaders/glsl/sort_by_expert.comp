#version 450
// The places row · CHOSEN + j in the order of their experts, and where each expert's begin: one workgroup, each invocation the
// places of every LOCAL-th expert, so that they stay in their order and nothing is atomic.
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint EXPERTS = 8u;
layout(constant_id = 2) const uint CHOSEN = 2u;
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer Experts { uint experts[]; };
layout(set = 0, binding = 1) writeonly buffer Order { uint order[]; };
layout(set = 0, binding = 2) writeonly buffer Starts { uint starts[]; };
layout(set = 0, binding = 3) readonly buffer Step { uint step[]; };
layout(push_constant) uniform Push {
    uint room;    // rows there is room for
    uint counter; // the word of the step that has the number of true rows, or NO_COUNTER
};
const uint NO_COUNTER = 0xFFFFFFFFu;

shared uint counts[EXPERTS];

void main() {
    uint lane = gl_LocalInvocationID.x, places = (counter == NO_COUNTER ? room : min(room, step[counter])) * CHOSEN;
    for (uint expert = lane; expert < EXPERTS; expert += LOCAL) {
        uint count = 0u;
        for (uint place = 0u; place < places; place++) count += uint(experts[place] == expert);
        counts[expert] = count;
    }
    barrier();
    for (uint expert = lane; expert < EXPERTS; expert += LOCAL) {
        uint at = 0u;
        for (uint earlier = 0u; earlier < expert; earlier++) at += counts[earlier];
        starts[expert] = at;
        if (expert == EXPERTS - 1u) starts[EXPERTS] = places;
        for (uint place = 0u; place < places; place++)
            if (experts[place] == expert) order[at++] = place;
    }
}
