/* How the left operand of `linear` is prepared, once for all matrices that it meets.
 *
 * For affine weights a row's group becomes i16 codes q with x ≈ scale · q, |q| ≤ 32767: products with weight codes are
 * then exact integers, and the rounding is that of 16 bits. For dense weights values stay float32.
 *
 * Few rows (vector form), a row at a time:
 *     affine: per group a header of three vectors, all lanes equal: scale, scale · Σq, Σq (i32); then per pair of
 *             columns a vector of four equal lanes. Dense: per column a vector of equal lanes.
 * More rows (tile form), four rows at a time, a lane a row:
 *     affine: per group the vectors scale, scale · Σq; then per pair of columns a vector. Dense: per column a vector. */
#pragma once
#include "base.h"

enum { TILE = 4, VECTOR_ROWS = 2, VECTOR_HEADER = 48, TILE_HEADER = 32 };

INLINE bool is_vector_form(u32 rows) { return rows <= VECTOR_ROWS; }

/* Bytes of a row in vector form, or of a tile. */
INLINE u32 prepared_bytes(bool vector, bool affine, u32 columns, u32 group) {
  if (!affine) return columns * 16;
  return columns / group * (vector ? VECTOR_HEADER : TILE_HEADER) + columns / 2 * 16;
}
