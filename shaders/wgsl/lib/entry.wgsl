fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
#if SUBGROUPS
        @builtin(subgroup_invocation_id) in_subgroup: u32, @builtin(subgroup_id) subgroup: u32,
        @builtin(num_subgroups) subgroups: u32,
#end
        @builtin(local_invocation_index) local: u32) {
#if SUBGROUPS
    let lanes = Lanes(local, in_subgroup == 0u, subgroup);
#else
    let lanes = Lanes(local);
    let subgroups = 1u;
#end
