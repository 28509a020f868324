// The gated delta rule, token by token: see `gated_delta` in the op table, and arXiv:2412.06464. delta_gates.wgsl has found what
// each token keeps and learns.
//
// A workgroup takes LOCAL columns of a head's matrix, an invocation one of them: it stays in registers while all tokens of a
// sequence go by, whose queries and keys are in shared memory.
@group(0) @binding(0) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(1) var<storage, read> qkv_tail: array<f32>;
@group(0) @binding(2) var<storage, read_write> found: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read> step: array<u32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(0) @binding(5) var<storage, read_write> state: array<f32>;

#include recurrent
#include reduce

// Past KEY_DIM they are zeros.
var<workgroup> queries: array<f32, ${4 * FOURS}>;
var<workgroup> keys: array<f32, ${4 * FOURS}>;

fn sum4(v: vec4<f32>) -> f32 { return (v.x + v.y) + (v.z + v.w); }

@compute @workgroup_size(LOCAL)
#include entry
    let column = workgroup.x * LOCAL + local;
    let head = workgroup.y;
    let q = sequence_at(workgroup.z);
    for (var i = KEY_DIM + local; i < ${4 * FOURS}u; i += LOCAL) {
        queries[i] = 0.0;
        keys[i] = 0.0;
    }
    let source = (q.source * HEADS + head) * ${KEY_DIM * WIDTH}u + column;
    let fold = (q.fold * HEADS + head) * ${KEY_DIM * WIDTH}u + column;
    let home = (q.home * HEADS + head) * ${KEY_DIM * WIDTH}u + column;
    let within = column < WIDTH;
#for f in FOURS
    var s_${f} = vec4<f32>(0.0);
#end
    if (q.source > 0u && within) {
#for i in KEY_DIM
        s_${i // 4}[${i % 4}] = state[source + ${i * WIDTH}u];
#end
    }
    if (q.fold > 0u && q.folded == 0u && within) {
#for i in KEY_DIM
        state[fold + ${i * WIDTH}u] = s_${i // 4}[${i % 4}];
#end
    }
    let key_head = ${"head % KEY_HEADS" if TILED else f"head / {HEADS // KEY_HEADS}u"};
    for (var token = 0u; token < q.replayed + q.rows; token++) {
        let own = token >= q.replayed;
        let row = select(tail_row(q, q.replayed - token), q.first + token - q.replayed, own);
        let base = row * ${2 * KEY_HEADS * KEY_DIM + HEADS * WIDTH}u + key_head * KEY_DIM;
        var squares = vec2<f32>(0.0);
        workgroupBarrier(); // of the token before, all is read
        for (var i = local; i < KEY_DIM; i += LOCAL) {
            var both = vec2<f32>(0.0);
            if (own) {
                both = vec2<f32>(qkv[base + i], qkv[base + ${KEY_HEADS * KEY_DIM}u + i]);
            } else {
                both = vec2<f32>(qkv_tail[base + i], qkv_tail[base + ${KEY_HEADS * KEY_DIM}u + i]);
            }
            queries[i] = both.x;
            keys[i] = both.y;
            squares += both * both;
        }
        workgroupBarrier();
        let query_length = 1.0 / sqrt(workgroup_sum(squares.x, lanes, subgroups) + EPS);
        let key_length = 1.0 / sqrt(workgroup_sum(squares.y, lanes, subgroups) + EPS);
        let gate = found[select(ROOM + workgroup.z * LENGTH + token, row, own) * HEADS + head];
        let at = row * ${2 * KEY_HEADS * KEY_DIM + HEADS * WIDTH}u + ${2 * KEY_HEADS * KEY_DIM}u + head * WIDTH + column;
        var value = 0.0;
        if (within && own) { value = qkv[at]; }
        if (within && !own) { value = qkv_tail[at]; }
        // S ← keep · S; S ← S + k ⊗ (learn · (v − kᵀS)); qᵀS. The lengths of k and q come as factors.
        var recalled = vec4<f32>(0.0);
        var answer = vec4<f32>(0.0);
#for f in FOURS
        let key_${f} = vec4<f32>(keys[${4 * f}], keys[${4 * f + 1}], keys[${4 * f + 2}], keys[${4 * f + 3}]);
        recalled += key_${f} * s_${f};
#end
        let more = gate.y * (value - gate.x * key_length * sum4(recalled)) * key_length;
#for f in FOURS
        s_${f} = gate.x * s_${f} + key_${f} * more;
        answer += vec4<f32>(queries[${4 * f}], queries[${4 * f + 1}], queries[${4 * f + 2}], queries[${4 * f + 3}]) * s_${f};
#end
        if (own && within) { y[(row * HEADS + head) * WIDTH + column] = sum4(answer) * query_length * ${KEY_DIM ** -0.5}; }
        if (q.fold > 0u && q.folded == token + 1u && within) {
#for i in KEY_DIM
            state[fold + ${i * WIDTH}u] = s_${i // 4}[${i % 4}];
#end
        }
    }
    if (within) {
#for i in KEY_DIM
        state[home + ${i * WIDTH}u] = s_${i // 4}[${i % 4}];
#end
    }
}
