// Rows of a table: a thread takes eight columns of one.
uint unit = thread_position_in_grid.x, token = thread_position_in_grid.y;
float ws[8], scale, bias;
Matrix<BITS, GROUP, BIASED, TABLED, ZERO>::unit(w, scales, biases, table, ids[token], unit, COLUMNS, ws, scale, bias);
for (uint i = 0; i < 8; ++i)
  if (unit * 8 + i < COLUMNS) y[token * COLUMNS + unit * 8 + i] = factor[0] * (scale * ws[i] + bias);
