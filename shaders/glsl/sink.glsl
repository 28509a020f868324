// What a head's sums count for, once all of its keys are summed relative to the score `peak`: 1 / Σ, in which its sink takes
// part if it has one. Where a row sees nothing its sums are zeros, and stay so.
float share_of(float peak, float total, bool has_sink, float sink) {
    if (!has_sink) return 1.0 / max(total, 1e-30);
    float joint = max(peak, sink), keep = exp(peak - joint);
    return keep / (total * keep + exp(sink - joint));
}
