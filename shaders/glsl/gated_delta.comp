#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#if SUBGROUPS
#extension GL_KHR_shader_subgroup_arithmetic : require
#endif
// The gated delta rule, token by token: see `gated_delta` in the op table, and arXiv:2412.06464.
//
// A workgroup takes 4 · FOURS columns of a head's matrix, and an invocation every LOCAL-th of their rows, which stay in
// registers while all tokens of a sequence go by, as do its values of a token's key and query. What is summed over rows is
// summed over the workgroup.
//
// variant: gated_delta SUBGROUPS=0
// variant: gated_delta_subgroups SUBGROUPS=1
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint FOURS = 2u;
layout(constant_id = 2) const uint KEY_HEADS = 2u;
layout(constant_id = 3) const uint HEADS = 4u;
layout(constant_id = 4) const uint KEY_DIM = 128u;
layout(constant_id = 5) const uint WIDTH = 128u; // of a head's values
layout(constant_id = 6) const uint LENGTH = 8u;
layout(constant_id = 7) const bool TILED = false;
layout(constant_id = 8) const float EPS = 1e-6;
layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) readonly buffer Rows { float qkv[]; };
layout(set = 0, binding = 1) readonly buffer A { float a[]; };
layout(set = 0, binding = 2) readonly buffer B { float b[]; };
layout(set = 0, binding = 3) readonly buffer Gates { float gates[]; }; // rate of each head, then dt_bias
layout(set = 0, binding = 4) readonly buffer RowsTail { float qkv_tail[]; };
layout(set = 0, binding = 5) readonly buffer ATail { float a_tail[]; };
layout(set = 0, binding = 6) readonly buffer BTail { float b_tail[]; };
layout(set = 0, binding = 7) readonly buffer Step { uint step[]; };
layout(set = 0, binding = 8) writeonly buffer Y { float y[]; };
layout(set = 0, binding = 9) buffer State { float state[]; };

#include "exp.glsl"
#include "recurrent.glsl"

const uint KEYS = KEY_HEADS * KEY_DIM;
const uint COLUMNS = 2u * KEYS + HEADS * WIDTH;
const uint ROWS = (KEY_DIM + LOCAL - 1u) / LOCAL;

vec4 s[ROWS * FOURS];
float keys[ROWS], queries[ROWS]; // past KEY_DIM zeros

shared vec4 partial[LOCAL];

vec4 workgroup_sum(vec4 value) {
#if SUBGROUPS
    value = subgroupAdd(value);
    if (gl_NumSubgroups == 1u) return value;
    if (subgroupElect()) partial[gl_SubgroupID] = value;
    barrier();
    value = partial[0];
    for (uint i = 1u; i < gl_NumSubgroups; i++) value += partial[i];
    barrier();
    return value;
#else
    partial[gl_LocalInvocationID.x] = value;
    for (uint half_ = LOCAL / 2u; half_ > 0u; half_ /= 2u) {
        barrier();
        if (gl_LocalInvocationID.x < half_) partial[gl_LocalInvocationID.x] += partial[gl_LocalInvocationID.x + half_];
    }
    barrier();
    value = partial[0];
    barrier();
    return value;
#endif
}

// ln(1 + e^x) as max(x, 0) + ln(1 + t), t = e^−|x|; ln(1 + t) = 2 artanh(t / (2 + t)), a series that ends soon.
float softplus(float x) {
    float t = exp_below(-abs(x)), z = t / (2.0 + t), zz = z * z, sum = 1.0 / 15.0;
    sum = sum * zz + 1.0 / 13.0;
    sum = sum * zz + 1.0 / 11.0;
    sum = sum * zz + 1.0 / 9.0;
    sum = sum * zz + 1.0 / 7.0;
    sum = sum * zz + 1.0 / 5.0;
    sum = sum * zz + 1.0 / 3.0;
    return max(x, 0.0) + 2.0 * z * (sum * zz + 1.0);
}

uint row_at(uint r) {
    return r * LOCAL + gl_LocalInvocationID.x;
}

uint place_of(uint slot, uint head, uint row) {
    return ((slot * HEADS + head) * KEY_DIM + row) * WIDTH;
}

void read_matrix(uint slot, uint head, uint column) {
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        uint base = place_of(slot, head, row_at(r)) + column;
        bool there = slot > 0u && row_at(r) < KEY_DIM;
        [[unroll]] for (uint f = 0u; f < FOURS; f++)
            [[unroll]] for (uint i = 0u; i < 4u; i++)
                s[r * FOURS + f][i] = there && column + f * 4u + i < WIDTH ? state[base + f * 4u + i] : 0.0;
    }
}

void write_matrix(uint slot, uint head, uint column) {
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        uint base = place_of(slot, head, row_at(r)) + column;
        [[unroll]] for (uint f = 0u; f < FOURS; f++)
            [[unroll]] for (uint i = 0u; i < 4u; i++)
                if (row_at(r) < KEY_DIM && column + f * 4u + i < WIDTH) state[base + f * 4u + i] = s[r * FOURS + f][i];
    }
}

// The token's key and query; one over the length of each.
vec2 read_token(bool own, uint row, uint head) {
    uint key_head = TILED ? head % KEY_HEADS : head / (HEADS / KEY_HEADS), base = row * COLUMNS + key_head * KEY_DIM;
    vec4 squares = vec4(0.0);
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        uint at = base + row_at(r);
        bool there = row_at(r) < KEY_DIM;
        queries[r] = there ? (own ? qkv[at] : qkv_tail[at]) : 0.0;
        keys[r] = there ? (own ? qkv[at + KEYS] : qkv_tail[at + KEYS]) : 0.0;
        squares.xy += vec2(queries[r] * queries[r], keys[r] * keys[r]);
    }
    return 1.0 / sqrt(workgroup_sum(squares).xy + EPS);
}

vec4 values_at(bool own, uint at, uint column) {
    vec4 found = vec4(0.0);
    [[unroll]] for (uint i = 0u; i < 4u; i++)
        if (column + i < WIDTH) found[i] = own ? qkv[at + i] : qkv_tail[at + i];
    return found;
}

// S ← keep · S; S ← S + k ⊗ (learn · (v − kᵀS)); qᵀS, of four columns. The lengths of q and k come as factors.
vec4 run_token(uint f, vec2 lengths, float keep, float learn, vec4 values) {
    vec4 recalled = vec4(0.0), found = vec4(0.0);
    [[unroll]] for (uint r = 0u; r < ROWS; r++) recalled += keys[r] * s[r * FOURS + f];
    vec4 more = learn * lengths.y * (values - keep * lengths.y * workgroup_sum(recalled));
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        vec4 now = keep * s[r * FOURS + f] + keys[r] * more;
        s[r * FOURS + f] = now;
        found += queries[r] * now;
    }
    return workgroup_sum(found) * lengths.x;
}

void main() {
    uint column = gl_WorkGroupID.x * FOURS * 4u, head = gl_WorkGroupID.y;
    Sequence q = sequence_at(gl_WorkGroupID.z);
    read_matrix(q.source, head, column);
    if (q.fold > 0u && q.folded == 0u) write_matrix(q.fold, head, column);
    float scale = 1.0 / sqrt(float(KEY_DIM));
    for (uint token = 0u; token < q.replayed + q.rows; token++) {
        bool own = token >= q.replayed;
        uint row = own ? q.first + token - q.replayed : tail_row(q, q.replayed - token), gate = row * HEADS + head;
        vec2 lengths = read_token(own, row, head);
        float keep = exp_below(gates[head] * softplus((own ? a[gate] : a_tail[gate]) + gates[HEADS + head]));
        float learn = 1.0 / (1.0 + exp(-(own ? b[gate] : b_tail[gate])));
        uint at = row * COLUMNS + 2u * KEYS + head * WIDTH, to = (row * HEADS + head) * WIDTH;
        [[unroll]] for (uint f = 0u; f < FOURS; f++) {
            uint first = column + f * 4u;
            vec4 found = run_token(f, lengths, keep, learn, values_at(own, at + first, first)) * scale;
            if (!own) continue;
            [[unroll]] for (uint i = 0u; i < 4u; i++)
                if ((f * 4u + i) % LOCAL == gl_LocalInvocationID.x && first + i < WIDTH) y[to + first + i] = found[i];
        }
        if (q.fold > 0u && q.folded == token + 1u) write_matrix(q.fold, head, column);
    }
    write_matrix(q.home, head, column);
}
