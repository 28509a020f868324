// A value as one for all invocations: what comes from atomics or writable memory may differ from one to the next, as far as a
// compiler knows, and barriers must not depend on it.
var<workgroup> told: u32;

fn agreed(value: u32, first: bool) -> u32 {
    if (first) { told = value; }
    return workgroupUniformLoad(&told);
}
