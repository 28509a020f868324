// Keys and values in their pages, 16 bytes at a time: eight halves, or four floats in exact mode. With F16 halves are read by
// their own type: a matrix of two columns is its only one of 16 bytes.
//
//     K vec4<u32> [page][head][vector of the head][slot]     V vec4<u32> [page][head][slot][vector of the head]

#if F16
enable f16;
alias Sixteen = mat2x4<f16>;
#else
alias Sixteen = vec4<u32>;
#end

fn low_of(q: Sixteen) -> vec4<f32> {
#if F16
    return vec4<f32>(q[0]);
#elif HALVES
    return vec4<f32>(unpack2x16float(q.x), unpack2x16float(q.y));
#else
    return bitcast<vec4<f32>>(q);
#end
}

#if F16
fn high_of(q: Sixteen) -> vec4<f32> { return vec4<f32>(q[1]); }
#elif HALVES
fn high_of(q: Sixteen) -> vec4<f32> { return vec4<f32>(unpack2x16float(q.z), unpack2x16float(q.w)); }
#end

#if HALVES
fn pack_vector(low: vec4<f32>, high: vec4<f32>) -> vec4<u32> {
    return vec4<u32>(pack2x16float(low.xy), pack2x16float(low.zw), pack2x16float(high.xy), pack2x16float(high.zw));
}
#end
