// Sines and cosines of position · frequency, exact for any position.
//
// A frequency comes in turns as a 64-bit fraction (high, low). Multiplied by an integer position, whole turns wrap away in
// 32-bit arithmetic, and what is left is exact to 2^-32 of a turn: no driver's sin, whose error the API leaves open and which
// loses its argument's low bits at large positions, is asked.

#include wide

fn cos_sin_of_turns(position: u32, frequency: vec2<u32>) -> vec2<f32> {
    let turn = position * frequency.x + high_product(position, frequency.y);
    // The nearest quarter turn, and the rest as −π/4 … π/4.
    let quarter = (turn + 0x20000000u) >> 30u;
    let a = f32(bitcast<i32>(turn - (quarter << 30u))) * 1.4629180792671596e-9; // 2π · 2^-32
    let aa = a * a;
    var s = a * (1.0 + aa * (-0.16666667 + aa * (0.008333333 + aa * (-0.00019841270 + aa * 2.7557319e-6))));
    var c = 1.0 + aa * (-0.5 + aa * (0.041666667 + aa * (-0.0013888889 + aa * 2.4801587e-5)));
    if ((quarter & 1u) == 1u) {
        let swap = s;
        s = c;
        c = -swap;
    }
    if ((quarter & 2u) == 2u) { return vec2<f32>(-c, -s); }
    return vec2<f32>(c, s);
}

// The table has two pairs' frequencies in each vector.
fn frequency_of(pair: u32) -> vec2<u32> {
    let two = frequencies[pair >> 1u];
    if ((pair & 1u) == 1u) { return two.zw; }
    return two.xy;
}
