// Where a sequence's recurrent state lies: StepInputs in pie_edge/program/step.py says what each field is.
#pragma once
#include "common.cuh"

struct Spans {
  const u32 *counts, *query_starts, *slots, *spans;
};

struct Sequence {
  u32 first, end, source, home, fold, start, replayed, folded;
  __device__ __forceinline__ Sequence(const Spans& spans, u32 s)
      : first(spans.query_starts[s]), end(spans.query_starts[s + 1]), source(spans.slots[3 * s]), home(spans.slots[3 * s + 1]),
        fold(spans.slots[3 * s + 2]), start(spans.spans[3 * s]), replayed(spans.spans[3 * s + 1]), folded(spans.spans[3 * s + 2]) {}
};
