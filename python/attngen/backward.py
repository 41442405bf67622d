# SPDX-License-Identifier: MIT
"""KDA's backward pass, and its stages; `library`, `flags`, `workspace` and errors are those of families.py."""

from ._arrays import kind_of
from ._options import beta_form, bias, chunks, gate_form, handle, longest, sequences


def kda(q, k, v, g, beta, *, scale=None, initial_state=None, output_final_state=False, use_qk_l2norm_in_kernel=False,
        use_gate_in_kernel=False, use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, safe_gate=False,
        lower_bound=None, state_v_first=False, cu_seqlens=None, max_seqlen=None, A_log=None, dt_bias=None,
        keep_states=False, library=None, flags=0):
    """Kimi Delta Attention with gradients: kda_prefill, and kda_bwd behind it where torch asks for one.

    Arguments are kda_prefill's; tensors of torch that require a gradient get one: q, k, v, g, beta, A_log, dt_bias and
    initial_state. keep_states: the forward pass keeps the state in front of each chunk of 64 tokens (2 K V / 64 bytes
    a token and value head), else the backward pass computes it once more. Arrays of NumPy and JAX have no gradients.
    Returns (o, final_state), o as v; final_state is None where it is not asked for, else float32.
    """
    from .families import kda_prefill

    run = getattr(kind_of(q), "kda", None)
    if run is None:
        return kda_prefill(q, k, v, g, beta, scale=scale, initial_state=initial_state,
                           output_final_state=output_final_state, use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
                           use_gate_in_kernel=use_gate_in_kernel,
                           use_beta_sigmoid_in_kernel=use_beta_sigmoid_in_kernel, allow_neg_eigval=allow_neg_eigval,
                           safe_gate=safe_gate, lower_bound=lower_bound, state_v_first=state_v_first,
                           cu_seqlens=cu_seqlens, max_seqlen=max_seqlen, A_log=A_log, dt_bias=dt_bias,
                           library=library, flags=flags)
    return run(q, k, v, g, beta, initial_state, A_log, dt_bias, cu_seqlens, scale, output_final_state,
               use_qk_l2norm_in_kernel, use_gate_in_kernel, use_beta_sigmoid_in_kernel, allow_neg_eigval, safe_gate,
               lower_bound, state_v_first, max_seqlen, keep_states, library, flags)


def kda_bwd(q, k, v, g, beta, d_o, *, d_final_state=None, states=None, scale=None, initial_state=None,
            output_d_initial_state=None, use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False,
            use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, safe_gate=False, lower_bound=None,
            state_v_first=False, cu_seqlens=None, max_seqlen=None, A_log=None, dt_bias=None, library=None, flags=0,
            workspace=None):
    """Kimi Delta Attention's backward pass: gradients of kda_prefill's inputs, from those of what it returned.

    Inputs and options are kda_prefill's. d_o: as its o; d_final_state: as its final_state, None: zeros. states: what
    kda_prefill wrote there, None: computed once more. A_log: [HV], dt_bias: [HV, K] float32.
    Returns (d_q, d_k, d_v, d_g, d_beta, d_A_log, d_dt_bias, d_initial_state), each as its input; the sums d_A_log and
    d_dt_bias are float32, None where their inputs are or where the gate is given; d_initial_state is None without
    output_d_initial_state (None: as whether there is an initial_state). Rows of tokens that no sequence has are zeros.
    """
    xp = kind_of(q)
    max_seqlen = longest(xp, cu_seqlens, max_seqlen)
    gate = gate_form(use_gate_in_kernel, lower_bound)
    if not use_gate_in_kernel:
        A_log = dt_bias = None
    make = xp.like if cu_seqlens is None else xp.zeros_like
    d_q, d_k, d_v, d_g, d_beta = (make(x) for x in (q, k, v, g, beta))
    d_A_log, d_dt_bias = xp.like(A_log), xp.like(dt_bias)
    d_initial_state = None
    if initial_state is not None if output_d_initial_state is None else output_d_initial_state:
        d_initial_state = xp.fp32(q, (sequences(q, cu_seqlens), v.shape[-2], q.shape[-1], v.shape[-1]))
    answer = xp.call("kda_bwd", handle(library), flags, workspace, q, k, v, g, beta, d_o, A_log, bias(dt_bias, g),
                   initial_state, states, d_final_state, d_q, d_k, d_v, d_g, d_beta, d_A_log, bias(d_dt_bias, g),
                   d_initial_state, xp.index(cu_seqlens), max_seqlen, scale, lower_bound if gate == 2 else None, gate,
                   beta_form(use_beta_sigmoid_in_kernel, allow_neg_eigval), use_qk_l2norm_in_kernel, state_v_first,
                   bool(safe_gate or gate == 2))
    if answer is not None:
        return answer
    return tuple(map(xp.give, (d_q, d_k, d_v, d_g, d_beta, d_A_log, d_dt_bias, d_initial_state)))


def kda_bwd_dav(v_new, d_o, a_qk, *, scale=None, cu_seqlens=None, max_seqlen=None, library=None, flags=0,
                workspace=None):
    """The first stage of KDA's backward pass: what the outputs' gradients make inside a chunk of 64 tokens.

    v_new, d_o: [B, T, HV, V] bfloat16 or float16, kda_chunk_h's and the outputs' gradients; a_qk: [B, T, HV, 64].
    Returns (d_a_qk, d_v): [B, T, HV, 64] float32, and as v_new.
    """
    xp = kind_of(v_new)
    max_seqlen = longest(xp, cu_seqlens, max_seqlen)
    d_a_qk, d_v = xp.fp32(v_new, a_qk.shape), xp.like(v_new)
    answer = xp.call("kda_bwd_dav", handle(library), flags, workspace, v_new, d_o, a_qk, d_a_qk, d_v,
                   xp.index(cu_seqlens), max_seqlen, scale)
    return (xp.give(d_a_qk), xp.give(d_v)) if answer is None else answer


def kda_bwd_dhu(qg, kg, w, gk, d_o, d_v, *, d_final_state=None, output_d_initial_state=False, scale=None,
                cu_seqlens=None, max_seqlen=None, num_chunks=None, state_v_first=False, library=None, flags=0,
                workspace=None):
    """The second stage: the gradient of the state behind each chunk, from a sequence's last chunk to its first.

    qg, kg, w: [B, T, HV, K], d_o, d_v: [B, T, HV, V] bfloat16 or float16; gk: [B, T, HV, K] float32. d_final_state:
    [N, HV, K, V] float32, None: zeros. num_chunks: as kda_chunk_h's.
    Returns (d_h, d_v_new, d_initial_state): d_h of [B, chunks, HV, K, V], with state_v_first [.., V, K]; d_v_new as
    d_v; d_initial_state of [N, HV, K, V] float32, or None.
    """
    xp = kind_of(qg)
    max_seqlen = longest(xp, cu_seqlens, max_seqlen)
    shape = qg.shape if len(qg.shape) == 4 else (1, *qg.shape)
    if num_chunks is None:
        num_chunks = chunks(qg, cu_seqlens) // (1 if cu_seqlens is not None else shape[0] or 1)
    d_h, d_v_new = xp.empty(qg, (shape[0], num_chunks, shape[2], shape[3], shape[3])), xp.like(d_v)
    d_initial_state = None
    if output_d_initial_state:
        d_initial_state = xp.fp32(qg, (sequences(qg, cu_seqlens), shape[2], shape[3], shape[3]))
    answer = xp.call("kda_bwd_dhu", handle(library), flags, workspace, qg, kg, w, gk, d_o, d_v, d_final_state, d_h,
                   d_v_new, d_initial_state, xp.index(cu_seqlens), max_seqlen, scale, state_v_first)
    return tuple(map(xp.give, (d_h, d_v_new, d_initial_state))) if answer is None else answer


def kda_bwd_wy(q, k, v, v_new, gk, beta, a_kk, h, d_o, d_h, d_v_new, *, scale=None, cu_seqlens=None, max_seqlen=None,
               state_v_first=False, library=None, flags=0, workspace=None):
    """The third stage: gradients of a chunk's inputs from those of its states, without the scores' share.

    q, k: [B, T, H, K], normalized, v, v_new, d_o, d_v_new: [B, T, HV, V], a_kk: [B, T, HV, 64], h, d_h: [B, chunks,
    HV, K, V] bfloat16 or float16; gk: [B, T, HV, K] float32; beta: [B, T, HV], activated.
    Returns (d_q, d_k, d_v, d_beta, d_g, d_a_kk): d_v as v, the others float32: d_q, d_k, d_g of [B, T, HV, K].
    """
    xp = kind_of(q)
    max_seqlen = longest(xp, cu_seqlens, max_seqlen)
    d_q, d_k, d_g = (xp.fp32(q, gk.shape) for _ in range(3))
    d_v, d_beta, d_a_kk = xp.like(v), xp.fp32(q, gk.shape[:-1]), xp.fp32(q, a_kk.shape)
    answer = xp.call("kda_bwd_wy", handle(library), flags, workspace, q, k, v, v_new, gk, beta, a_kk, h, d_o, d_h,
                   d_v_new, d_q, d_k, d_v, d_beta, d_g, d_a_kk, xp.index(cu_seqlens), max_seqlen, scale, state_v_first)
    return tuple(map(xp.give, (d_q, d_k, d_v, d_beta, d_g, d_a_kk))) if answer is None else answer


def kda_bwd_intra(q, k, gk, beta, d_a_qk, d_a_kk, d_q, d_k, d_beta, d_g, *, cu_seqlens=None, max_seqlen=None,
                  safe_gate=False, library=None, flags=0, workspace=None):
    """The fourth stage: what the scores' gradients add to kda_bwd_wy's.

    q, k: [B, T, H, K], normalized, bfloat16 or float16; gk: [B, T, HV, K] float32; beta: [B, T, HV], activated; d_a_qk,
    d_a_kk: [B, T, HV, 64] and d_q, d_k, d_g: [B, T, HV, K] and d_beta: [B, T, HV] float32 of the stages before.
    Returns (d_q, d_k, d_beta, d_g), new ones, of each value head by itself; d_g is not summed over rows yet.
    """
    xp = kind_of(q)
    max_seqlen = longest(xp, cu_seqlens, max_seqlen)
    results = tuple(xp.like(x) for x in (d_q, d_k, d_beta, d_g))
    answer = xp.call("kda_bwd_intra", handle(library), flags, workspace, q, k, gk, beta, d_a_qk, d_a_kk, d_q, d_k, d_beta,
                   d_g, *results, xp.index(cu_seqlens), max_seqlen, safe_gate)
    return tuple(map(xp.give, results)) if answer is None else answer


def kda_gate_bwd(g, d_gk, *, A_log=None, dt_bias=None, lower_bound=None, use_gate_in_kernel=True, suffix_sum=True,
                 cu_seqlens=None, max_seqlen=None, library=None, flags=0, workspace=None):
    """The fifth stage: gradients of raw gates, and of what all tokens share.

    g: [B, T, HV, K] float32, or bfloat16 or float16; d_gk: [B, T, HV, K] float32, kda_bwd_intra's d_g; without
    suffix_sum it was summed over a chunk's later rows already. A_log: [HV], dt_bias: [HV, K] float32.
    Returns (d_g, d_A_log, d_dt_bias): d_g as g, the sums float32, or None where their inputs are.
    """
    xp = kind_of(d_gk)
    max_seqlen = longest(xp, cu_seqlens, max_seqlen)
    gate = gate_form(use_gate_in_kernel, lower_bound)
    if gate == 0:
        A_log = dt_bias = None
    d_g, d_A_log, d_dt_bias, partials = xp.like(g), xp.like(A_log), xp.like(dt_bias), None
    heads, width = d_gk.shape[-2:]
    if A_log is not None or dt_bias is not None:
        partials = xp.fp32(d_gk, (heads * (4 + chunks(d_gk, cu_seqlens) * (width + 4)),))
    answer = xp.call("kda_gate_bwd", handle(library), flags, workspace, g if gate else None, d_gk, d_g, A_log,
                   bias(dt_bias, d_gk), d_A_log, bias(d_dt_bias, d_gk), partials, xp.index(cu_seqlens), max_seqlen,
                   gate, lower_bound if gate == 2 else None, suffix_sum)
    return tuple(map(xp.give, (d_g, d_A_log, d_dt_bias))) if answer is None else answer


def kda_qk_bwd(q, k, beta, d_q_heads, d_k_heads, d_beta_heads, *, q_rstd=None, k_rstd=None,
               use_qk_l2norm_in_kernel=False, use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False,
               cu_seqlens=None, max_seqlen=None, library=None, flags=0, workspace=None):
    """The last stage: gradients of raw q, k and beta, q and k of all value heads of their groups.

    q, k: [B, T, H, K] bfloat16 or float16, raw, or normalized beside their q_rstd and k_rstd of [B, T, H] float32;
    beta: [B, T, HV], raw; d_q_heads, d_k_heads: [B, T, HV, K], d_beta_heads: [B, T, HV] float32. Each input and its
    d_.._heads may be None together.
    Returns (d_q, d_k, d_beta), each as its input.
    """
    xp = kind_of(next((x for x in (q, k, beta) if x is not None), None))
    max_seqlen = longest(xp, cu_seqlens, max_seqlen)
    d_q, d_k, d_beta = xp.like(q), xp.like(k), xp.like(beta)
    form = beta_form(use_beta_sigmoid_in_kernel, allow_neg_eigval)
    raw = (q, k) if use_qk_l2norm_in_kernel else (None, None)
    answer = xp.call("kda_qk_bwd", handle(library), flags, workspace, *raw, q_rstd, k_rstd, beta if form else None,
                   d_q_heads, d_k_heads, d_beta_heads, d_q, d_k, d_beta, xp.index(cu_seqlens), max_seqlen,
                   use_qk_l2norm_in_kernel, form)
    return tuple(map(xp.give, (d_q, d_k, d_beta))) if answer is None else answer


ALL = (kda_bwd, kda_bwd_dav, kda_bwd_dhu, kda_bwd_wy, kda_bwd_intra, kda_gate_bwd, kda_qk_bwd)
