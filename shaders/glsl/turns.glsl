// Sines and cosines of position · frequency, exact for any position.
//
// A frequency comes in turns as a 64-bit fraction (high, low). Multiplied by an integer position, whole turns wrap away in
// 32-bit arithmetic, and what is left is exact to 2^-32 of a turn: no driver's sin, whose error the API leaves open and
// which loses its argument's low bits at large positions, is asked.

vec2 cos_sin_of_turns(uint position, uvec2 frequency) {
    uint high, low;
    umulExtended(position, frequency.y, high, low);
    uint turn = position * frequency.x + high;
    // The nearest quarter turn, and the rest as −π/4 … π/4.
    uint quarter = (turn + 0x20000000u) >> 30;
    float a = float(int(turn - (quarter << 30))) * 1.4629180792671596e-9; // 2π · 2^-32
    float aa = a * a;
    float s = a * (1.0 + aa * (-0.16666667 + aa * (0.008333333 + aa * (-0.00019841270 + aa * 2.7557319e-6))));
    float c = 1.0 + aa * (-0.5 + aa * (0.041666667 + aa * (-0.0013888889 + aa * 2.4801587e-5)));
    if ((quarter & 1u) == 1u) {
        float swap = s;
        s = c;
        c = -swap;
    }
    return (quarter & 2u) == 2u ? vec2(-c, -s) : vec2(c, s);
}
