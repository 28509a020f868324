// The places row · CHOSEN + j in the order of their experts, and where each expert's begin: one workgroup, each invocation the
// places of every LOCAL-th expert, so that they stay in their order and nothing is atomic.
@group(0) @binding(0) var<storage, read_write> experts: array<u32>;
@group(0) @binding(1) var<storage, read_write> order: array<u32>;
@group(0) @binding(2) var<storage, read_write> starts: array<u32>;
#if COUNTED
@group(0) @binding(3) var<uniform> counts: vec4<u32>;
#end
struct Params {
    room: u32, // rows there is room for
}
@group(1) @binding(0) var<uniform> p: Params;

var<workgroup> sizes: array<u32, ${EXPERTS}>;

@compute @workgroup_size(LOCAL)
fn main(@builtin(local_invocation_index) lane: u32) {
#if COUNTED
    let places = min(p.room, counts[COUNTER]) * CHOSEN;
#else
    let places = p.room * CHOSEN;
#end
    for (var expert = lane; expert < EXPERTS; expert += LOCAL) {
        var count = 0u;
        for (var place = 0u; place < places; place++) { count += select(0u, 1u, experts[place] == expert); }
        sizes[expert] = count;
    }
    workgroupBarrier();
    for (var expert = lane; expert < EXPERTS; expert += LOCAL) {
        var at = 0u;
        for (var earlier = 0u; earlier < expert; earlier++) { at += sizes[earlier]; }
        starts[expert] = at;
        if (expert == ${EXPERTS - 1}u) { starts[EXPERTS] = places; }
        for (var place = 0u; place < places; place++) {
            if (experts[place] == expert) {
                order[at] = place;
                at++;
            }
        }
    }
}
