// What every kernel of an epilogue is bound to, in words.
@group(0) @binding(0) var<storage, read> logits: array<${LOGITS}>;
@group(0) @binding(1) var<storage, read> inputs: array<u32>;
@group(0) @binding(2) var<storage, read_write> arena: array<u32>;
@group(0) @binding(3) var<storage, read_write> outputs: array<u32>;

#include exact
