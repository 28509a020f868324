// A causal convolution: a thread has one column of one row. `rows` says of each row its sequence and its place there; `talks` as in
// gated_delta.
uint column = thread_position_in_grid.x, row = thread_position_in_grid.y;
uint sequence = rows[2 * row];
int within = int(rows[2 * row + 1]), home = talks[8 * sequence + 3], start = talks[8 * sequence + 5];
float sum = 0.0f;
for (int back = 0; back < TAPS; ++back) {
  int place = start + within - back;
  float seen = 0.0f;
  if (back <= within) seen = x[(row - uint(back)) * COLUMNS + column];
  else if (place >= 0) seen = tail[(uint(home) * LENGTH + uint(place % LENGTH)) * COLUMNS + column];
  sum += weight[column * TAPS + uint(TAPS - 1 - back)] * seen;
}
y[row * COLUMNS + column] = SHIFTED ? sum + shift[column] : sum;
