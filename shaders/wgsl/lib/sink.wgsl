// What a head's sum of exponentials, relative to its peak, is multiplied by to be a share of all: of a sink's, too, a score that
// weighs and adds nothing.
#if SINKS
fn share_of(peak: f32, total: f32, head: u32) -> f32 {
    let joint = max(peak, sinks[head]);
    let shrink = exp(peak - joint);
    return shrink / (total * shrink + exp(sinks[head] - joint));
}
#else
fn share_of(peak: f32, total: f32, head: u32) -> f32 { return 1.0 / max(total, 1e-30); }
#end
