#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
// The gated delta rule, token by token: see `gated_delta` in the op table, and arXiv:2412.06464.
//
// A workgroup takes LOCAL columns of a head's matrix, an invocation one of them: it stays in registers while all tokens of a
// sequence go by, whose queries and keys are in shared memory.
//
// variant: gated_delta SUBGROUPS=0
// variant: gated_delta_subgroups SUBGROUPS=1
layout(constant_id = 0) const uint LOCAL = 8u;
layout(constant_id = 1) const uint KEY_HEADS = 2u;
layout(constant_id = 2) const uint HEADS = 4u;
layout(constant_id = 3) const uint KEY_DIM = 128u;
layout(constant_id = 4) const uint WIDTH = 128u; // of a head's values
layout(constant_id = 5) const uint LENGTH = 8u;
layout(constant_id = 6) const bool TILED = false;
layout(constant_id = 7) const float EPS = 1e-6;
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
#include "reduce.glsl"

const uint KEYS = KEY_HEADS * KEY_DIM;
const uint COLUMNS = 2u * KEYS + HEADS * WIDTH;
const uint FOURS = (KEY_DIM + 3u) / 4u;

// Past KEY_DIM they are zeros.
shared float queries[FOURS * 4u], keys[FOURS * 4u];
vec4 s[FOURS];

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

uint matrix_at(uint slot, uint head) {
    return (slot * HEADS + head) * KEY_DIM * WIDTH;
}

void read_column(uint slot, uint head, uint column) {
    uint base = matrix_at(slot, head) + column;
    [[unroll]] for (uint f = 0u; f < FOURS; f++)
        [[unroll]] for (uint i = 0u; i < 4u; i++)
            s[f][i] = slot > 0u && column < WIDTH && f * 4u + i < KEY_DIM ? state[base + (f * 4u + i) * WIDTH] : 0.0;
}

void write_column(uint slot, uint head, uint column) {
    if (column >= WIDTH) return;
    uint base = matrix_at(slot, head) + column;
    [[unroll]] for (uint f = 0u; f < FOURS; f++)
        [[unroll]] for (uint i = 0u; i < 4u; i++)
            if (f * 4u + i < KEY_DIM) state[base + (f * 4u + i) * WIDTH] = s[f][i];
}

// The token's query and key into shared memory; one over the length of each.
vec2 share(bool own, uint row, uint head) {
    uint key_head = TILED ? head % KEY_HEADS : head / (HEADS / KEY_HEADS), base = row * COLUMNS + key_head * KEY_DIM;
    vec2 squares = vec2(0.0);
    barrier(); // of the token before, all is read
    for (uint i = gl_LocalInvocationID.x; i < KEY_DIM; i += LOCAL) {
        vec2 both = own ? vec2(qkv[base + i], qkv[base + KEYS + i]) : vec2(qkv_tail[base + i], qkv_tail[base + KEYS + i]);
        queries[i] = both.x;
        keys[i] = both.y;
        squares += both * both;
    }
    barrier();
    return 1.0 / sqrt(vec2(workgroup_sum(squares.x), workgroup_sum(squares.y)) + EPS);
}

vec4 key_at(uint f) {
    return vec4(keys[f * 4u], keys[f * 4u + 1u], keys[f * 4u + 2u], keys[f * 4u + 3u]);
}

vec4 query_at(uint f) {
    return vec4(queries[f * 4u], queries[f * 4u + 1u], queries[f * 4u + 2u], queries[f * 4u + 3u]);
}

float sum4(vec4 v) {
    return (v.x + v.y) + (v.z + v.w);
}

// S ← keep · S; S ← S + k ⊗ (learn · (v − kᵀS)); qᵀS. The lengths of k and q come as factors.
float run_token(vec2 lengths, float keep, float learn, float value) {
    vec4 recalled = vec4(0.0), found = vec4(0.0);
    [[unroll]] for (uint f = 0u; f < FOURS; f++) recalled += key_at(f) * s[f];
    float more = learn * (value - keep * lengths.y * sum4(recalled)) * lengths.y;
    [[unroll]] for (uint f = 0u; f < FOURS; f++) {
        s[f] = keep * s[f] + key_at(f) * more;
        found += query_at(f) * s[f];
    }
    return sum4(found) * lengths.x;
}

void main() {
    uint column = gl_GlobalInvocationID.x, head = gl_WorkGroupID.y;
    Sequence q = sequence_at(gl_WorkGroupID.z);
    for (uint i = KEY_DIM + gl_LocalInvocationID.x; i < FOURS * 4u; i += LOCAL) queries[i] = keys[i] = 0.0;
    read_column(q.source, head, column);
    if (q.fold > 0u && q.folded == 0u) write_column(q.fold, head, column);
    float scale = 1.0 / sqrt(float(KEY_DIM));
    for (uint token = 0u; token < q.replayed + q.rows; token++) {
        bool own = token >= q.replayed;
        uint row = own ? q.first + token - q.replayed : tail_row(q, q.replayed - token);
        uint gate = row * HEADS + head;
        vec2 lengths = share(own, row, head);
        float keep = exp_below(gates[head] * softplus((own ? a[gate] : a_tail[gate]) + gates[HEADS + head]));
        float learn = 1.0 / (1.0 + exp(-(own ? b[gate] : b_tail[gate])));
        uint at = row * COLUMNS + 2u * KEYS + head * WIDTH + column;
        float value = column >= WIDTH ? 0.0 : own ? qkv[at] : qkv_tail[at];
        float found = run_token(lengths, keep, learn, value) * scale;
        if (own && column < WIDTH) y[(row * HEADS + head) * WIDTH + column] = found;
        if (q.fold > 0u && q.folded == token + 1u) write_column(q.fold, head, column);
    }
    write_column(q.home, head, column);
}
