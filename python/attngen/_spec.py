# SPDX-License-Identifier: MIT
"""The arguments of libattngen_tvmffi's functions, behind library, flags and workspace.

T: a tensor that is read, T!: one that is written, ?: None is allowed.
"""

_SPEC = """
attn_fwd: q T, k T, v T, o T!, lse T!?, cu_seqlens_q T?, cu_seqlens_k T?, max_seqlen_q int?, max_seqlen_k int?,
    scale float?, causal bool, window_left int, window_right int, softcap float, q_descale T?, k_descale T?,
    v_descale T?
attn_paged: q T, k T, v T, o T!, lse T!?, kv_len T?, page_indices T?, page_indptr T?, last_page_len T?, q_indptr T?,
    q_len int, mean_kv_len int, max_kv_len int, scale float?, causal bool, window_left int, softcap float, sink T?,
    q_descale T?, k_descale T?, v_descale T?, lse_base_2 bool, lse_sink bool
attn_merge: v T, lse T, v_2 T?, lse_2 T?, o T!, o_lse T!?, lse_base_2 bool
mla_decode: q_nope T, q_pe T?, ckv T, kpe T?, o T!, lse T!?, kv_len T, page_indices T, page_indptr T?, q_indptr T?,
    q_len int, mean_kv_len int, max_kv_len int, scale float, causal bool, lse_base_2 bool, ckv_scale float,
    kpe_scale float, q_scale float
mla_sparse: q_nope T, q_pe T?, kv T, o T!, lse T!?, indices T, topk_length T?, sink T?, scale float, lse_base_2 bool
la_decode: q T, k T, v T, o T!, decay T, state T!, slots T?, scale float?, state_v_first bool, zero_padding bool,
    slots_out T?, null_slot int?
kda_decode: q T, k T, v T, g T, beta T, o T!, A_log T?, dt_bias T?, state T!, slots T?, accepted T?, cu_seqlens T?,
    num_tokens int?, scale float?, lower_bound float?, gate_form int, beta_form int, qk_l2norm bool,
    state_v_first bool, write int, zero_padding bool, slots_out T?, null_slot int?, ring_k T!?, ring_g T!?,
    ring_u T!?, ring_fill T?, ring_base T?, flush T?, ring_len int?
kda_ring_advance: ring_fill T!, ring_base T, slots T?, flush T?, null_slot int?, num_tokens int, ring_len int,
    ring_size int
kda_ring_accept: ring_fill T!, ring_base T!, slots T?, flush T?, null_slot int?, num_tokens int, ring_size int,
    accepted T?
kda_prefill: q T, k T, v T, g T, beta T, o T!, A_log T?, dt_bias T?, initial_state T?, final_state T!?, states T!?,
    cu_seqlens T?, max_seqlen int?, scale float?, lower_bound float?, gate_form int, beta_form int, qk_l2norm bool,
    state_v_first bool, safe_gate bool, segment_chunks int, slots_in T?, slots_out T?, has_initial T?, null_slot int?,
    ckpt_pool T!?, ckpt_begin T?, ckpt_token T?, ckpt_slot T?, ckpt_every int
gdn_decode: q T, k T, v T, g T, beta T, o T!, A_log T?, dt_bias T?, state T!, slots T?, accepted T?, cu_seqlens T?,
    num_tokens int?, scale float?, lower_bound float?, gate_form int, beta_form int, qk_l2norm bool,
    state_v_first bool, write int, zero_padding bool, slots_out T?, null_slot int?, ring_k T!?, ring_g T!?,
    ring_u T!?, ring_fill T?, ring_base T?, flush T?, ring_len int?
gdn_prefill: q T, k T, v T, g T, beta T, o T!, A_log T?, dt_bias T?, initial_state T?, final_state T!?, states T!?,
    cu_seqlens T?, max_seqlen int?, scale float?, lower_bound float?, gate_form int, beta_form int, qk_l2norm bool,
    state_v_first bool, safe_gate bool, segment_chunks int, slots_in T?, slots_out T?, has_initial T?, null_slot int?,
    ckpt_pool T!?, ckpt_begin T?, ckpt_token T?, ckpt_slot T?, ckpt_every int
kda_step: x T, conv_w T, conv_bias T?, conv_state T!, gate T, beta T, A_log T?, dt_bias T?, z T?, norm_w T?, state T!,
    slots T?, out T!, scale float?, lower_bound float?, eps float, gate_form int, beta_form int, z_form int,
    conv_state_update bool, null_slot int?, zero_padding bool
gdn_step: x T, conv_w T, conv_bias T?, conv_state T!, gate T, beta T, A_log T?, dt_bias T?, z T?, norm_w T?, state T!,
    slots T?, out T!, scale float?, lower_bound float?, eps float, gate_form int, beta_form int, z_form int,
    conv_state_update bool, null_slot int?, zero_padding bool
kda_gate: g T, gk T!, A_log T?, dt_bias T?, q T?, k T?, q_norm T!?, k_norm T!?, q_rstd T!?, k_rstd T!?,
    cu_seqlens T?, max_seqlen int?, gate_form int, lower_bound float?
kda_chunk_intra: q T, k T, v T?, gk T, beta T, a_qk T!, a_kk T!, w T!?, u T!?, kg T!?, qg T!?, cu_seqlens T?,
    max_seqlen int?, scale float?, safe_gate bool
kda_recompute_wu: q T?, k T, v T, gk T, beta T, a_kk T, w T!, u T!, kg T!?, qg T!?, cu_seqlens T?, max_seqlen int?
kda_chunk_h: kg T, w T, u T, gk T, initial_state T?, h T!, v_new T!, final_state T!?, cu_seqlens T?,
    max_seqlen int?, state_v_first bool
kda_chunk_o: q T, v_new T, gk T, a_qk T, h T, o T!, cu_seqlens T?, max_seqlen int?, scale float?, state_v_first bool
kda_bwd: q T, k T, v T, g T, beta T, d_o T, A_log T?, dt_bias T?, initial_state T?, states T?, d_final_state T?,
    d_q T!, d_k T!, d_v T!, d_g T!, d_beta T!, d_A_log T!?, d_dt_bias T!?, d_initial_state T!?, cu_seqlens T?,
    max_seqlen int?, scale float?, lower_bound float?, gate_form int, beta_form int, qk_l2norm bool,
    state_v_first bool, safe_gate bool
kda_bwd_dav: v_new T, d_o T, a_qk T, d_a_qk T!, d_v T!, cu_seqlens T?, max_seqlen int?, scale float?
kda_bwd_dhu: qg T, kg T, w T, gk T, d_o T, d_v T, d_final_state T?, d_h T!, d_v_new T!, d_initial_state T!?,
    cu_seqlens T?, max_seqlen int?, scale float?, state_v_first bool
kda_bwd_wy: q T, k T, v T, v_new T, gk T, beta T, a_kk T, h T, d_o T, d_h T, d_v_new T, d_q T!, d_k T!, d_v T!,
    d_beta T!, d_g T!, d_a_kk T!, cu_seqlens T?, max_seqlen int?, scale float?, state_v_first bool
kda_bwd_intra: q T, k T, gk T, beta T, d_a_qk T, d_a_kk T, d_q_states T, d_k_states T, d_beta_states T, d_g_states T,
    d_q T!, d_k T!, d_beta T!, d_g T!, cu_seqlens T?, max_seqlen int?, safe_gate bool
kda_gate_bwd: g T?, d_gk T, d_g T!, A_log T?, dt_bias T?, d_A_log T!?, d_dt_bias T!?, partials T!?, cu_seqlens T?,
    max_seqlen int?, gate_form int, lower_bound float?, suffix_sum bool
kda_qk_bwd: q T?, k T?, q_rstd T?, k_rstd T?, beta T?, d_q_heads T?, d_k_heads T?, d_beta_heads T?, d_q T!?, d_k T!?,
    d_beta T!?, cu_seqlens T?, max_seqlen int?, qk_l2norm bool, beta_form int
"""


def _parse():
    spec = {}
    for line in _SPEC.replace("\n    ", " ").strip().splitlines():
        name, arguments = line.split(": ", 1)
        spec[name] = tuple(tuple(a.split()) for a in arguments.split(", "))
    return spec


SPEC = _parse()


def schema(name):
    """The schema of the torch operator attngen::<name>."""
    arguments, letters = ["int library", "int flags", "Tensor(a0!)? workspace"], 0
    for argument, kind in SPEC[name]:
        if kind.startswith("T"):
            letters += "!" in kind
            kind = ("Tensor" + (f"(a{letters}!)" if "!" in kind else "")) + ("?" if "?" in kind else "")
        arguments.append(f"{kind} {argument}")
    return f"({', '.join(arguments)}) -> ()"


def written(name):
    """The arguments that a call writes."""
    return ("workspace",) + tuple(argument for argument, kind in SPEC[name] if "!" in kind)
