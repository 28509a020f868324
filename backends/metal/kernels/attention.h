constant constexpr float LEAST = -1e30f;
constant constexpr float NOTHING = 1e-30f;
