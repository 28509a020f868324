// Where the recurrent state of a step's sequences lies, and what of it they go on from: `StepInputs` says what each is.
//
// Whoever includes it binds `step` and knows LENGTH, the tokens of a tail. Fields lie in the step's block, in words.
layout(push_constant) uniform Fields {
    uint COUNTS;
    uint QUERY_STARTS;
    uint STATE_SLOTS;
    uint STATE_SPANS;
};

struct Sequence {
    uint first, rows; // of the step
    uint source, home, fold;
    uint start, replayed, folded;
};

Sequence sequence_at(uint index) {
    uint slots = STATE_SLOTS + 3u * index, spans = STATE_SPANS + 3u * index;
    uint first = step[QUERY_STARTS + index];
    return Sequence(
        first, step[QUERY_STARTS + index + 1u] - first, step[slots], step[slots + 1u], step[slots + 2u], step[spans],
        step[spans + 1u], step[spans + 2u]);
}

// Which sequence a row belongs to: the last one that begins no later.
uint sequence_of(uint row) {
    uint low = 0u, high = step[COUNTS + 1u];
    while (high - low > 1u) {
        uint middle = (low + high) / 2u;
        if (step[QUERY_STARTS + middle] <= row) low = middle;
        else high = middle;
    }
    return low;
}

// The row of the tail that holds the token `back` places before a sequence's first row.
uint tail_row(Sequence s, uint back) {
    return s.home * LENGTH + (s.start - back) % LENGTH;
}
