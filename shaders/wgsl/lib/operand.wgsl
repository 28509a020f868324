#if KS > 1
var<workgroup> partial: array<f32, ${(KS - 1) * RI * (SIDES * NR * M + (M if NORM else 0))}>;
#end

fn sum_of(v: vec4<f32>) -> f32 { return (v.x + v.y) + (v.z + v.w); }

// Not dot(): it may round in another order from driver to driver.
fn product(a: vec4<f32>, b: vec4<f32>) -> f32 { return (a.x * b.x + a.y * b.y) + (a.z * b.z + a.w * b.w); }

fn x_at(token: u32, four: u32) -> vec4<f32> {
#if COLUMNS % 32
    // Columns past the matrix weigh nothing, but what lies there may be infinite.
    if (four >= ${COLUMNS // 4}u) { return vec4<f32>(0.0); }
#end
    return x[token * ${COLUMNS // 4}u + four];
}
