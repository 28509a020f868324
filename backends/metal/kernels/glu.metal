// act(gate) · up, a value a thread.
uint i = thread_position_in_grid.x;
float x = gate[i], found = x;
if (ACT == 0) found = x / (1.0f + metal::precise::exp(-x));
if (ACT == 1) {
  float inner = 0.7978845608f * (x + 0.044715f * x * x * x);
  // Beyond 10 it is 1 to the last bit, and tanh of what overflows may be none.
  found = 0.5f * x * (1.0f + metal::precise::tanh(clamp(inner, -10.0f, 10.0f)));
}
if (ACT == 2) found = max(x, 0.0f);
if (ACT == 3) found = 1.0f / (1.0f + metal::precise::exp(-x));
// What is no number stays none: a clamp or a maximum may make one of it.
y[i] = (x != x ? x : found) * up[i];
