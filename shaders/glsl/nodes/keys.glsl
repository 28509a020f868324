// Numbers as u32 keys in the same order; -0.0 and 0.0 have one key.

#define F32 0u
#define I32 1u
#define U32 2u

uint key_of(uint word, uint type) {
    if (type == U32) return word;
    if (type == I32) return word ^ 0x80000000u;
    if (word == 0x80000000u) word = 0u;
    return (word >> 31) != 0u ? ~word : word | 0x80000000u;
}

uint word_of(uint key) { // of an f32
    return (key >> 31) != 0u ? key & 0x7FFFFFFFu : ~key;
}
