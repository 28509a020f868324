// Keys and values in their pages, 16 bytes at a time: eight halves, or four floats in exact mode.
//
//     K vec4<u32> [page][head][vector of the head][slot]     V vec4<u32> [page][head][slot][vector of the head]

#include halves
fn low_of(q: vec4<u32>) -> vec4<f32> {
#if HALVES
    return vec4<f32>(halves(q.x), halves(q.y));
#else
    return bitcast<vec4<f32>>(q);
#end
}

#if HALVES
fn high_of(q: vec4<u32>) -> vec4<f32> { return vec4<f32>(halves(q.z), halves(q.w)); }

fn pack_vector(low: vec4<f32>, high: vec4<f32>) -> vec4<u32> {
    return vec4<u32>(pack2x16float(low.xy), pack2x16float(low.zw), pack2x16float(high.xy), pack2x16float(high.zw));
}
#end
