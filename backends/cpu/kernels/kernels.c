/* The kernels by number: the order of KERNELS in instructions.py. */
#include "crew.h"

kernel add, mul, mul_rows, scale, softcap, activation, glu, rms_norm, add_rms_norm, layer_norm, rope_angles, rope,
    kv_append, attention, attention_merge, attention_mass, prepare_affine, prepare_dense, linear_affine,
    linear_dense, embed, gather_rows, store, copy_pages, copy_slots, repack, adapter_linear, short_conv, tail_append,
    gated_delta, clamped_glu, route, sort_by_expert, prepare_experts, expert_linear_affine, expert_linear_dense,
    combine_experts;

kernel *const kernels[] = {
    add, mul, mul_rows, scale, softcap, activation, glu, rms_norm, add_rms_norm, layer_norm, rope_angles, rope,
    kv_append, attention, attention_merge, attention_mass, prepare_affine, prepare_dense, linear_affine,
    linear_dense, embed, gather_rows, store, copy_pages, copy_slots, repack, adapter_linear, short_conv, tail_append,
    gated_delta, clamped_glu, route, sort_by_expert, prepare_experts, expert_linear_affine, expert_linear_dense,
    combine_experts};
