/* Walking the rows of a dense float32 matrix. */
#pragma once
#include "crew.h"

/* Rows a chunk has at least, so that taking it is worth the trouble. */
#define ROW_LEAST(width) max_u32(1, 512 / (width))

#define FOR_VECTORS(i, n) for (u32 i = 0; i + 4 <= (n); i += 4)
#define FOR_REST(i, n) for (u32 i = (n) & ~3u; i < (n); i++)
