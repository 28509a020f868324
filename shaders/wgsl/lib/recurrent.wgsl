// Where the recurrent state of a step's sequences lies, and what of it they go on from: `StepInputs` says what each is.
//
// Whoever includes it binds `step` and knows LENGTH, the tokens of a tail. Fields lie in the step's block, in words.
struct Params {
    counts: u32,
    query_starts: u32,
    state_slots: u32,
    state_spans: u32,
    zero: u32,
}
@group(1) @binding(0) var<uniform> p: Params;

struct Sequence {
    first: u32,
    rows: u32, // of the step
    source: u32,
    home: u32,
    fold: u32,
    start: u32,
    replayed: u32,
    folded: u32,
}

fn sequence_at(index: u32) -> Sequence {
    let slots = p.state_slots + 3u * index;
    let spans = p.state_spans + 3u * index;
    let first = step[p.query_starts + index];
    return Sequence(first, step[p.query_starts + index + 1u] - first, step[slots], step[slots + 1u], step[slots + 2u],
                    step[spans], step[spans + 1u], step[spans + 2u]);
}

// Which sequence a row belongs to: the last one that begins no later.
fn sequence_of(row: u32) -> u32 {
    var low = 0u;
    var high = step[p.counts + 1u];
    while (high - low > 1u) {
        let middle = (low + high) / 2u;
        if (step[p.query_starts + middle] <= row) { low = middle; } else { high = middle; }
    }
    return low;
}

// The row of the tail that holds the token `back` places before a sequence's first row.
fn tail_row(s: Sequence, back: u32) -> u32 { return s.home * LENGTH + (s.start - back) % LENGTH; }
