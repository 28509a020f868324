// Float operations are written down with every rounding, and must not be brought together with others: zero, which no
// compiler knows to be so, stands between them.
fn exact(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ p.zero); }

// A float by its bits, infinite or not a number: constants may not be that.
fn float_of(word: u32) -> f32 { return bitcast<f32>(word ^ p.zero); }
