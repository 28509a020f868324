@compute @workgroup_size(LOCAL)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(num_workgroups) workgroups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
    lane = local;
    let row = workgroup.z * workgroups.y + workgroup.y;
    if (row >= true_rows()) { return; }
