# SPDX-License-Identifier: MIT
"""FLA's functions of KDA's backward pass on the stages: what fla.py's backends inherit."""

import torch

from . import backward
from ._fla_checks import KERNEL_DTYPES, alike, bias, chunk, device, flat, fp32, gate, gradients, need, served
from ._fla_checks import side, tensors, verifier, whole


def _packed(q, cu_seqlens, chunk_indices):
    need(cu_seqlens is None or q.shape[0] == 1, "with cu_seqlens the batch is 1")
    need(cu_seqlens is None or chunk_indices is not None, "attngen needs the number of chunks (chunk_indices)")


def _static(use_graph):
    need(not use_graph, "attngen does not serve static buffers of CUDA graphs (use_graph)")


def _heads(q, x):
    need(x.dim() == 4 and x.shape[:2] == q.shape[:2] and x.shape[2] % q.shape[2] == 0,
         "attngen needs value heads that are a multiple of the query heads")


class Kda:
    """What an output's gradient makes inside a chunk, gradients of a chunk's inputs, of the scores, of raw gates."""

    @verifier
    def chunk_kda_bwd_dAv_verifier(q, k, v, do, A=None, scale=None, cu_seqlens=None, chunk_size=64, chunk_indices=None,
                                   use_graph=False):
        need(A is not None and scale is not None, "attngen needs A and scale")
        tensors(v, do, v.shape[-1], q, k, A)
        _heads(q, v)
        need(do.shape == v.shape, "attngen needs do as v")
        need(A.dtype is v.dtype and A.shape == (*v.shape[:3], 64), f"attngen needs A of [B, T, HV, 64] in {v.dtype}")
        chunk(chunk_size)
        _packed(q, cu_seqlens, chunk_indices)
        _static(use_graph)

    def chunk_kda_bwd_dAv(self, q, k, v, do, A=None, scale=None, cu_seqlens=None, chunk_size=64, chunk_indices=None,
                          use_graph=False):
        v, do, A = whole(v, do, A)
        with torch.no_grad():
            result = backward.kda_bwd_dav(v, do, A, scale=scale, cu_seqlens=cu_seqlens)
        served["chunk_kda_bwd_dAv"] += 1
        return result

    @verifier
    def chunk_kda_bwd_wy_dqkg_fused_verifier(q, k, v, v_new, g, beta, A, h, do, dh, dv, scale=None,
                                             state_v_first=False, cu_seqlens=None, chunk_size=64, chunk_indices=None,
                                             chunk_offsets=None, use_graph=False):
        alike(q, k)
        tensors(q, v, q.shape[-1], k, v_new, g, beta, A, h, do, dh, dv)
        _heads(q, v)
        need(all(x.dtype is q.dtype for x in (v_new, A, h, do, dh, dv)), f"attngen needs all of 16 bits in {q.dtype}")
        need(all(x.shape == v.shape for x in (v_new, g, do, dv)), "attngen needs v_new, g, do and dv as v")
        need(A.shape == (*v.shape[:3], 64), "attngen needs A of 64 columns")
        need(beta.shape == v.shape[:3], "attngen needs one beta a head")
        need(h.shape == dh.shape, "attngen needs h and dh of one shape")
        fp32("g", g)
        side("beta", beta, q.dtype)
        chunk(chunk_size)
        _packed(q, cu_seqlens, chunk_indices)
        _static(use_graph)

    def chunk_kda_bwd_wy_dqkg_fused(self, q, k, v, v_new, g, beta, A, h, do, dh, dv, scale=None, state_v_first=False,
                                    cu_seqlens=None, chunk_size=64, chunk_indices=None, chunk_offsets=None,
                                    use_graph=False):
        with torch.no_grad():
            dq, dk, dv, db, dg, dA = backward.kda_bwd_wy(*whole(q, k, v, v_new, g, beta, A, h, do, dh, dv), scale=scale,
                                                         cu_seqlens=cu_seqlens, state_v_first=state_v_first)
        served["chunk_kda_bwd_wy_dqkg_fused"] += 1
        return dq, dk, dv, db, dg, dA

    @verifier
    def chunk_kda_bwd_intra_verifier(q, k, g, beta, dAqk, dAkk, dq, dk, db, dg, cu_seqlens=None, chunk_indices=None,
                                     chunk_size=64, safe_gate=False, lower_bound=None, use_graph=False):
        alike(q, k)
        tensors(q, None, q.shape[-1], k, g, beta, dAqk, dAkk, dq, dk, db, dg)
        _heads(q, g)
        for x in (g, dAqk, dAkk, dq, dk, db, dg):
            fp32("g and all gradients", x)
        need(all(x.shape == g.shape for x in (dq, dk, dg)), "attngen needs dq, dk and dg of each value head")
        need(all(x.shape == (*g.shape[:3], 64) for x in (dAqk, dAkk)), "attngen needs scores of 64 columns")
        need(beta.shape == g.shape[:3] == db.shape, "attngen needs one beta a head")
        side("beta", beta, q.dtype)
        chunk(chunk_size)
        _packed(q, cu_seqlens, chunk_indices)
        _static(use_graph)

    def chunk_kda_bwd_intra(self, q, k, g, beta, dAqk, dAkk, dq, dk, db, dg, cu_seqlens=None, chunk_indices=None,
                            chunk_size=64, safe_gate=False, lower_bound=None, use_graph=False):
        q, k, g, beta, dAqk, dAkk, dq, dk, db, dg = whole(q, k, g, beta, dAqk, dAkk, dq, dk, db, dg)
        with torch.no_grad():
            result = backward.kda_bwd_intra(q, k, g, beta, dAqk, dAkk, dq, dk, db, dg, cu_seqlens=cu_seqlens,
                                            safe_gate=bool(safe_gate))
        served["chunk_kda_bwd_intra"] += 1
        return result

    @verifier
    def kda_gate_bwd_verifier(g, A_log=None, dt_bias=None, dyg=None, lower_bound=None):
        need(g.dim() >= 3 and g.shape[-1] in (64, 128), f"attngen needs g of [.., HV, 64 or 128], got {[*g.shape]}")
        need(dyg is not None and dyg.shape == g.shape, "attngen needs dyg as g")
        device(g)
        need(g.dtype in (*KERNEL_DTYPES, torch.float32), f"attngen needs g of 16 bits or float32, got {g.dtype}")
        fp32("dyg", dyg)
        gate(g, A_log, dt_bias, lower_bound)

    def kda_gate_bwd(self, g, A_log=None, dt_bias=None, dyg=None, lower_bound=None):
        rows, summed = (x.contiguous().view(-1, *g.shape[-2:]) for x in (g, dyg))
        with torch.no_grad():
            dg, dA, dbias = backward.kda_gate_bwd(rows, summed, A_log=flat(A_log), dt_bias=bias(dt_bias, g),
                                                  lower_bound=lower_bound, suffix_sum=False)
        served["kda_gate_bwd"] += 1
        return (dg.view(g.shape), None if dA is None else dA.view_as(A_log),
                None if dbias is None else dbias.view_as(dt_bias))


class Norm:
    """Gradients through the L2 norm of q or k."""

    @verifier
    def l2norm_bwd_verifier(y, rstd, dy, eps=1e-6):
        need(y.dim() in (3, 4) and y.shape[-1] in (64, 128),
             f"attngen needs y of [.., T, H, 64 or 128], got {[*y.shape]}")
        need(y.dtype in KERNEL_DTYPES, f"attngen needs bfloat16 or float16, got {y.dtype}")
        need(dy.numel() == y.numel() and rstd.numel() * y.shape[-1] == y.numel(), "attngen needs dy and rstd as y")
        fp32("dy", dy)
        fp32("rstd", rstd)
        device(y)
        gradients(y, rstd, dy)

    def l2norm_bwd(self, y, rstd, dy, eps=1e-6):
        rows = (-1, *y.shape[-2:])
        with torch.no_grad():
            dx, _, _ = backward.kda_qk_bwd(y.reshape(rows), None, None, dy.reshape(rows), None, None,
                                           q_rstd=rstd.reshape(rows[:2]), use_qk_l2norm_in_kernel=True)
        served["l2norm_bwd"] += 1
        return dx.view(y.shape)


class Common:
    """The gradient of the state behind each chunk, and that of raw betas."""

    @verifier
    def fused_beta_sigmoid_bwd_verifier(x, dy, scale=1.0):
        need(x.dim() >= 2 and x.dtype in (*KERNEL_DTYPES, torch.float32),
             f"attngen needs x of [.., HV] of 16 bits or float32, got {[*x.shape]} in {x.dtype}")
        need(scale in (1.0, 2.0), f"attngen needs a scale of 1 or 2, got {scale}")
        need(dy.shape == x.shape, "attngen needs dy as x")
        fp32("dy", dy)
        device(x)
        gradients(x, dy)

    def fused_beta_sigmoid_bwd(self, x, dy, scale=1.0):
        rows = (-1, x.shape[-1])
        with torch.no_grad():
            _, _, dx = backward.kda_qk_bwd(None, None, x.reshape(rows), None, None, dy.reshape(rows),
                                           use_beta_sigmoid_in_kernel=True, allow_neg_eigval=scale == 2.0)
        served["fused_beta_sigmoid_bwd"] += 1
        return dx.view(x.shape)

    @verifier
    def chunk_gated_delta_rule_bwd_dhu_verifier(q, k, w, do, dv, g=None, gk=None, h0=None, dht=None, scale=None,
                                                state_v_first=False, cu_seqlens=None, chunk_size=64, chunk_indices=None,
                                                chunk_offsets=None, use_graph=False):
        need(g is None and gk is not None, "attngen needs gates by channel (gk) alone")
        tensors(q, do, q.shape[-1], k, w, dv, gk, h0, dht)
        need(all(x.dtype is q.dtype for x in (k, w, do, dv)), f"attngen needs all of 16 bits in {q.dtype}")
        need(all(x.shape == q.shape for x in (k, w, gk, do, dv)), "attngen needs q, k, w, gk, do and dv alike")
        fp32("gk", gk)
        fp32("dht", dht)
        chunk(chunk_size)
        _packed(q, cu_seqlens, chunk_indices)
        _static(use_graph)

    def chunk_gated_delta_rule_bwd_dhu(self, q, k, w, do, dv, g=None, gk=None, h0=None, dht=None, scale=None,
                                       state_v_first=False, cu_seqlens=None, chunk_size=64, chunk_indices=None,
                                       chunk_offsets=None, use_graph=False):
        q, k, w, gk, do, dv, dht = whole(q, k, w, gk, do, dv, dht)
        with torch.no_grad():
            dh, dv2, dh0 = backward.kda_bwd_dhu(q, k, w, gk, do, dv, d_final_state=dht,
                                                output_d_initial_state=h0 is not None, scale=scale,
                                                cu_seqlens=cu_seqlens, state_v_first=state_v_first,
                                                num_chunks=None if cu_seqlens is None else len(chunk_indices))
        served["chunk_gated_delta_rule_bwd_dhu"] += 1
        return dh, dh0, dv2
