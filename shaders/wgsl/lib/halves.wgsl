// The two halves of a word as floats.
#if F16
enable f16;
fn halves(word: u32) -> vec2<f32> { return vec2<f32>(bitcast<vec2<f16>>(word)); }
#else
fn halves(word: u32) -> vec2<f32> { return unpack2x16float(word); }
#end

