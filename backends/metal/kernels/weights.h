// Eight columns of a row of a matrix, as `ws`, `scale` and `bias`: each weight is scale · ws + bias. Codes of BITS bits lie in words,
// the lowest bits first, each row by itself; a matrix of BITS 0 has values as they are.
template <int BITS, int GROUP, bool BIASED, bool TABLED, int ZERO>
struct Matrix {
  template <typename W, typename S, typename B, typename L>
  static void unit(W w, S scales, B biases, L table, uint row, uint unit, uint columns, thread float* ws, thread float& scale, thread float& bias) {
    uint begin = unit * 8 * BITS, word = row * ((columns + 31) / 32 * BITS) + begin / 32;
    begin %= 32;
    for (uint i = 0; i < 8; ++i) {
      uint bit = begin + i * BITS, shift = bit % 32;
      uint code = w[word + bit / 32] >> shift;
      if (32 % BITS != 0 && shift + BITS > 32) code |= w[word + bit / 32 + 1] << (32 - shift);
      code &= (1u << BITS) - 1u;
      ws[i] = TABLED ? table[code] : float(code);
    }
    uint group = row * (columns / GROUP) + unit * 8 / GROUP;
    scale = float(scales[group]);
    bias = BIASED ? float(biases[group]) : -float(ZERO) * scale;
  }
};

template <int GROUP, bool BIASED, bool TABLED, int ZERO>
struct Matrix<0, GROUP, BIASED, TABLED, ZERO> {
  template <typename W, typename S, typename B, typename L>
  static void unit(W w, S, B, L, uint row, uint unit, uint columns, thread float* ws, thread float& scale, thread float& bias) {
    for (uint i = 0; i < 8; ++i) {
      uint column = unit * 8 + i;
      ws[i] = column < columns ? float(w[row * columns + column]) : 0.0f;
    }
    scale = 1.0f;
    bias = 0.0f;
  }
};

// Eight columns of a row of x; what is past the last one is 0.
template <typename X>
inline float eight(X x, uint row, uint unit, uint columns, thread float* xs) {
  float total = 0.0f;
  for (uint i = 0; i < 8; ++i) {
    uint column = unit * 8 + i;
    xs[i] = column < columns ? float(x[row * columns + column]) : 0.0f;
    total += xs[i];
  }
  return total;
}
