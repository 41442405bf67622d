# SPDX-License-Identifier: MIT
"""The stages of KDA's prefill; `library`, `flags`, `workspace` and errors are those of families.py."""

from ._arrays import kind_of
from ._options import bias, gate_form, handle, longest


def kda_gate(g, *, A_log=None, dt_bias=None, lower_bound=None, use_gate_in_kernel=True, q=None, k=None,
             cu_seqlens=None, max_seqlen=None, library=None, flags=0, workspace=None):
    """The first stage of KDA's prefill: gates activated and summed up within chunks of 64 tokens, times log2(e).

    g: [B, T, HV, K] float32, or bfloat16 or float16; A_log: [HV], dt_bias: [HV, K] float32. use_gate_in_kernel False:
    g is activated already. q, k: [B, T, H, K], to be divided by their norms as well.
    Returns gk, as g in float32; with q and k (gk, q_norm, k_norm, q_rstd, k_rstd).
    """
    xp = kind_of(g)
    max_seqlen = longest(xp, cu_seqlens, max_seqlen)
    gk = xp.fp32(g, g.shape)
    norms = (None,) * 4
    if q is not None:
        norms = (xp.like(q), xp.like(k), xp.fp32(q, q.shape[:-1]), xp.fp32(k, k.shape[:-1]))
    gate = gate_form(use_gate_in_kernel, lower_bound)
    if gate == 0:
        A_log = dt_bias = None
    answer = xp.call("kda_gate", handle(library), flags, workspace, g, gk, A_log, bias(dt_bias, g), q, k, *norms,
                   xp.index(cu_seqlens), max_seqlen, gate, lower_bound if gate == 2 else None)
    if answer is not None:
        return answer
    return xp.give(gk) if q is None else (xp.give(gk), *map(xp.give, norms))


def kda_chunk_intra(q, k, v, gk, beta, *, scale=None, cu_seqlens=None, max_seqlen=None, safe_gate=False,
                    with_qg=False, library=None, flags=0, workspace=None):
    """The second stage: what the chunks of 64 tokens need of each other's absence.

    q, k: [B, T, H, K], v: [B, T, HV, V] bfloat16 or float16; gk: [B, T, HV, K] float32, kda_gate's; beta: [B, T, HV].
    v None: A_qk and A_kk alone.
    Returns (w, u, qg, kg, A_qk, A_kk): [B, T, HV, K] (qg None without with_qg), A of [B, T, HV, 64].
    """
    xp = kind_of(q)
    max_seqlen = longest(xp, cu_seqlens, max_seqlen)
    shape = gk.shape
    a_qk, a_kk = xp.empty(q, (*shape[:-1], 64)), xp.empty(q, (*shape[:-1], 64))
    w = u = kg = qg = None
    if v is not None:
        w, u, kg = xp.empty(q, shape), xp.empty(q, shape), xp.empty(q, shape)
        qg = xp.empty(q, shape) if with_qg else None
    answer = xp.call("kda_chunk_intra", handle(library), flags, workspace, q, k, v, gk, beta, a_qk, a_kk, w, u, kg, qg,
                   xp.index(cu_seqlens), max_seqlen, scale, safe_gate)
    return tuple(map(xp.give, (w, u, qg, kg, a_qk, a_kk))) if answer is None else answer


def kda_recompute_wu(k, v, beta, A, gk, q=None, *, cu_seqlens=None, max_seqlen=None, library=None, flags=0,
                     workspace=None):
    """The third stage: w, u and kg (with q also qg) again, from kda_chunk_intra's A_kk.

    k: [B, T, H, K], v: [B, T, HV, V], A: [B, T, HV, 64] bfloat16 or float16; beta: [B, T, HV]; gk: [B, T, HV, K]
    float32.
    Returns (w, u, qg, kg); qg is None without q.
    """
    xp = kind_of(k)
    max_seqlen = longest(xp, cu_seqlens, max_seqlen)
    w, u, kg = xp.empty(k, gk.shape), xp.empty(k, gk.shape), xp.empty(k, gk.shape)
    qg = None if q is None else xp.empty(k, gk.shape)
    answer = xp.call("kda_recompute_wu", handle(library), flags, workspace, q, k, v, gk, beta, A, w, u, kg, qg,
                   xp.index(cu_seqlens), max_seqlen)
    return tuple(map(xp.give, (w, u, qg, kg))) if answer is None else answer


def kda_chunk_h(kg, w, u, gk, *, initial_state=None, output_final_state=False, cu_seqlens=None, max_seqlen=None,
                num_chunks=None, state_v_first=False, library=None, flags=0, workspace=None):
    """The fourth stage: the state in front of each chunk of 64 tokens.

    kg, w, u: [B, T, HV, K] bfloat16 or float16, gk: the same in float32. initial_state: [N, HV, K, V] float32.
    num_chunks: with cu_seqlens, all sequences' chunks (None: T / 64 + N, of which the first ones are written).
    Returns (h, v_new, final_state): h of [B, chunks, HV, K, V], with state_v_first [.., V, K]; v_new as u; final_state
    of [N, HV, K, V] float32, or None.
    """
    xp = kind_of(kg)
    max_seqlen = longest(xp, cu_seqlens, max_seqlen)
    shape = kg.shape if len(kg.shape) == 4 else (1, *kg.shape)
    sequences = shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    if num_chunks is None:
        num_chunks = (shape[1] + 63) // 64 if cu_seqlens is None else shape[1] // 64 + sequences
    h = xp.empty(kg, (shape[0], num_chunks, shape[2], shape[3], shape[3]))
    v_new = xp.like(u)
    final_state = xp.fp32(kg, (sequences, shape[2], shape[3], shape[3])) if output_final_state else None
    answer = xp.call("kda_chunk_h", handle(library), flags, workspace, kg, w, u, gk, initial_state, h, v_new,
                   final_state, xp.index(cu_seqlens), max_seqlen, state_v_first)
    return (xp.give(h), xp.give(v_new), xp.give(final_state)) if answer is None else answer


def kda_chunk_o(q, v_new, gk, a_qk, h, *, scale=None, cu_seqlens=None, max_seqlen=None, state_v_first=False, out=None,
                library=None, flags=0, workspace=None):
    """The last stage: outputs.

    q: [B, T, H, K], v_new: [B, T, HV, V], a_qk: [B, T, HV, 64], h: [B, chunks, HV, K, V] bfloat16 or float16; gk:
    [B, T, HV, K] float32.
    Returns o, as v_new.
    """
    xp = kind_of(q)
    max_seqlen = longest(xp, cu_seqlens, max_seqlen)
    if out is None:
        out = xp.like(v_new)
    answer = xp.call("kda_chunk_o", handle(library), flags, workspace, q, v_new, gk, a_qk, h, out,
                   xp.index(cu_seqlens), max_seqlen, scale, state_v_first)
    return xp.give(out) if answer is None else answer


ALL = (kda_gate, kda_chunk_intra, kda_recompute_wu, kda_chunk_h, kda_chunk_o)
