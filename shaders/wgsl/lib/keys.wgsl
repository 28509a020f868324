// Numbers as u32 keys in the same order; -0.0 and 0.0 have one key.
const F32_ = 0u;
const I32_ = 1u;
const U32_ = 2u;

fn key_of(given: u32, kind: u32) -> u32 {
    if (kind == U32_) { return given; }
    if (kind == I32_) { return given ^ 0x80000000u; }
    let word = select(given, 0u, given == 0x80000000u);
    return select(word | 0x80000000u, ~word, (word >> 31u) != 0u);
}

// Of an f32.
fn word_of(key: u32) -> u32 { return select(~key, key & 0x7FFFFFFFu, (key >> 31u) != 0u); }
