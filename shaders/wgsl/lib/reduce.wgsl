// Sums and maxima over a workgroup of LOCAL invocations, a power of two; all of them get the result.
//
// With SUBGROUPS within a subgroup first, and through shared memory only if there are several: where the workgroup is one
// subgroup there is no barrier at all. Without, a tree in shared memory: the same results to the last bit or two. How many
// subgroups there are is a parameter of its own: it is the same for all invocations, and compilers have to see that barriers
// depend on nothing else.

var<workgroup> reduced: array<f32, ${LOCAL}>;

struct Lanes {
    local: u32,
#if SUBGROUPS
    first: bool, // of its subgroup
    subgroup: u32,
#end
}

fn sum2(a: f32, b: f32) -> f32 { return a + b; }

#for which in (("workgroup_sum", "sum2", "subgroupAdd"), ("workgroup_max", "max", "subgroupMax"))
fn ${which[0]}(given: f32, lanes: Lanes, subgroups: u32) -> f32 {
#if SUBGROUPS
    var value = ${which[2]}(given);
    if (subgroups > 1u) {
        if (lanes.first) { reduced[lanes.subgroup] = value; }
        workgroupBarrier();
        value = reduced[0];
        for (var i = 1u; i < subgroups; i++) { value = ${which[1]}(value, reduced[i]); }
        workgroupBarrier();
    }
    return value;
#else
    reduced[lanes.local] = given;
#for n in LOCAL.bit_length() - 1
    workgroupBarrier();
    if (lanes.local < ${LOCAL >> (n + 1)}u) {
        reduced[lanes.local] = ${which[1]}(reduced[lanes.local], reduced[lanes.local + ${LOCAL >> (n + 1)}u]);
    }
#end
    workgroupBarrier();
    let value = reduced[0];
    workgroupBarrier();
    return value;
#end
}
#end
