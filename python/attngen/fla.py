# SPDX-License-Identifier: MIT
"""attngen as a backend of flash-linear-attention (fla 0.6 or newer, and 0.5.2): `attngen.fla.register()`.

FLA asks the backends of a dispatched function in the order of their priorities; a verifier accepts a call or gives a
reason why it does not, which FLA logs once at level INFO and which `declined` keeps. What is not served goes the way
that it would have gone without attngen. FLA_ATTNGEN=0 turns the backend off.
"""

import torch

from . import _fla_backward, backward, families
from ._fla_checks import (KERNEL_DTYPES, LOG2E, alike, bias, chunk, declined, device, flat, fp32, gate, gradients,
                          head_gate, longest, need, output, served, side, tensors, verifier, whole, zeros)
from ._fla_registry import BaseBackend, of_function
from ._fla_registry import register as _register

__all__ = ["declined", "register", "served"]


class _Backend(BaseBackend):
    backend_type = "attngen"
    package_name = "attngen"
    env_var = "FLA_ATTNGEN"
    priority = 2  # before FlashKDA's 3 and the default 5


class Prefill(_Backend):
    """chunk_kda on kda_prefill, and on kda_bwd where a gradient is wanted."""

    @verifier
    def chunk_kda_verifier(q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False,
                           use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, use_beta_sigmoid_in_kernel=False,
                           allow_neg_eigval=False, safe_gate=False, lower_bound=None, disable_recompute=False,
                           return_intermediate_states=False, state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None,
                           cp_context=None, use_graph=False, max_num_seqs=None, *, A_log=None, dt_bias=None,
                           chunk_size=64, **others):
        need(not others, f"attngen does not know {', '.join(others)}")
        alike(q, k)
        tensors(q, v, q.shape[-1], differentiable=True)
        need(v.shape[2] % q.shape[2] == 0 and g.shape == (*v.shape[:3], q.shape[3]) and beta.shape == v.shape[:3],
              "attngen needs g of [B, T, HV, K] and beta of [B, T, HV]")
        side("g", g, q.dtype)
        side("beta", beta, q.dtype)
        chunk(chunk_size)
        need(cp_context is None, "attngen does not serve context parallelism across devices")
        need(not return_intermediate_states, "attngen does not serve return_intermediate_states")
        need(not allow_neg_eigval or use_beta_sigmoid_in_kernel, "allow_neg_eigval goes with beta's sigmoid")
        need(cu_seqlens is None or q.shape[0] == 1, "with cu_seqlens the batch is 1")
        sequences = q.shape[0] if cu_seqlens is None else cu_seqlens.numel() - 1
        need(initial_state is None or initial_state.shape == (sequences, v.shape[2], q.shape[3], q.shape[3]),
              "attngen needs an initial state for each sequence")
        fp32("initial_state", initial_state)
        if use_gate_in_kernel:
            gate(g, A_log, dt_bias, lower_bound)

    def chunk_kda(self, q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False,
                  use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, use_beta_sigmoid_in_kernel=False,
                  allow_neg_eigval=False, safe_gate=False, lower_bound=None, disable_recompute=False,
                  return_intermediate_states=False, state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None,
                  cp_context=None, use_graph=False, max_num_seqs=None, *, A_log=None, dt_bias=None, chunk_size=64):
        q, k, v, g, beta, initial_state = whole(q, k, v, g, beta, initial_state)
        A_log, dt_bias = flat(A_log), bias(dt_bias, g)
        options = dict(scale=scale, initial_state=initial_state, output_final_state=output_final_state,
                       use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel, use_gate_in_kernel=use_gate_in_kernel,
                       use_beta_sigmoid_in_kernel=use_beta_sigmoid_in_kernel, allow_neg_eigval=allow_neg_eigval,
                       safe_gate=safe_gate, lower_bound=lower_bound, state_v_first=state_v_first,
                       cu_seqlens=cu_seqlens, max_seqlen=longest(cu_seqlens, cu_seqlens_cpu), A_log=A_log,
                       dt_bias=dt_bias)
        inputs = (q, k, v, g, beta, initial_state, A_log, dt_bias)
        if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs):
            result = backward.kda(q, k, v, g, beta, keep_states=bool(disable_recompute), **options)
        else:
            with torch.no_grad():
                result = families.kda_prefill(q, k, v, g, beta, out=output(v, cu_seqlens), **options)
        served["chunk_kda"] += 1
        return result


class Gdn(_Backend):
    """chunk_gated_delta_rule on gdn_prefill. (fused_recurrent_gated_delta_rule asks no backend.)"""

    @verifier
    def chunk_gated_delta_rule_verifier(q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False,
                                        use_qk_l2norm_in_kernel=False, use_beta_sigmoid_in_kernel=False,
                                        allow_neg_eigval=False, state_v_first=False, cu_seqlens=None,
                                        cu_seqlens_cpu=None, chunk_indices=None, cp_context=None, *,
                                        use_gate_in_kernel=False, A_log=None, dt_bias=None, chunk_size=64, **others):
        need(not others, f"attngen does not know {', '.join(others)}")
        alike(q, k)
        tensors(q, v, q.shape[-1], k, g, beta, initial_state, A_log, dt_bias)
        need(v.shape[2] % q.shape[2] == 0 and g.shape == v.shape[:3] and beta.shape == v.shape[:3],
             "attngen needs g and beta of [B, T, HV]")
        side("g", g, q.dtype)
        side("beta", beta, q.dtype)
        chunk(chunk_size)
        need(cp_context is None, "attngen does not serve context parallelism across devices")
        need(not allow_neg_eigval or use_beta_sigmoid_in_kernel, "allow_neg_eigval goes with beta's sigmoid")
        need(cu_seqlens is None or q.shape[0] == 1, "with cu_seqlens the batch is 1")
        sequences = q.shape[0] if cu_seqlens is None else cu_seqlens.numel() - 1
        need(initial_state is None or initial_state.shape == (sequences, v.shape[2], q.shape[3], q.shape[3]),
             "attngen needs an initial state for each sequence")
        fp32("initial_state", initial_state)
        if use_gate_in_kernel:
            head_gate(g, A_log, dt_bias)

    def chunk_gated_delta_rule(self, q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False,
                               use_qk_l2norm_in_kernel=False, use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False,
                               state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None, chunk_indices=None,
                               cp_context=None, *, use_gate_in_kernel=False, A_log=None, dt_bias=None, chunk_size=64):
        q, k, v, g, beta, initial_state = whole(q, k, v, g, beta, initial_state)
        with torch.no_grad():
            result = families.gdn_prefill(
                q, k, v, g, beta, scale=scale, initial_state=initial_state, output_final_state=output_final_state,
                use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel, use_gate_in_kernel=use_gate_in_kernel,
                use_beta_sigmoid_in_kernel=use_beta_sigmoid_in_kernel, allow_neg_eigval=allow_neg_eigval,
                state_v_first=state_v_first, cu_seqlens=cu_seqlens, max_seqlen=longest(cu_seqlens, cu_seqlens_cpu),
                A_log=flat(A_log), dt_bias=flat(dt_bias), out=output(v, cu_seqlens))
        served["chunk_gated_delta_rule"] += 1
        return result


class Kda(_fla_backward.Kda, _Backend):
    """The functions of fla.ops.kda: a decode step, and stages of the forward and of the backward pass."""

    @verifier
    def fused_recurrent_kda_fwd_verifier(q, k, v, g, beta, A_log=None, dt_bias=None, initial_state=None, scale=None,
                                         output_final_state=False, inplace_final_state=True, state_v_first=False,
                                         cu_seqlens=None, ssm_state_indices=None, num_accepted_tokens=None,
                                         use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False,
                                         use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, lower_bound=None,
                                         out=None, **others):
        need(not others, f"attngen does not know {', '.join(others)}")
        alike(q, k)
        tensors(q, v, q.shape[-1], k, g, beta, initial_state, A_log, dt_bias)
        need(beta.shape == v.shape[:3], "attngen needs one beta a head")
        need(g.shape == (*v.shape[:3], q.shape[3]), "attngen needs g of [B, T, HV, K]")
        side("g", g, q.dtype)
        side("beta", beta, q.dtype)
        need(_row_tokens(q, cu_seqlens, ssm_state_indices) <= 16, "attngen's kda_decode has rows of 16 tokens at most, "
              "or with cu_seqlens 16 in all, for nothing is read back to know more")
        fp32("initial_state", initial_state)
        need(initial_state is not None or not (inplace_final_state or ssm_state_indices is not None),
              "attngen needs the state that is updated in place")
        need(initial_state is None or initial_state.is_contiguous(), "attngen needs contiguous states")
        need(ssm_state_indices is None or inplace_final_state, "attngen's pool of states is updated in place")
        need(num_accepted_tokens is None or ssm_state_indices is not None, "num_accepted_tokens needs state indices")
        need(not allow_neg_eigval or use_beta_sigmoid_in_kernel, "allow_neg_eigval goes with beta's sigmoid")
        need(out is None or (out.is_contiguous() and out.dtype is v.dtype), "attngen needs a contiguous output")
        if use_gate_in_kernel:
            gate(g, A_log, dt_bias, lower_bound)

    def fused_recurrent_kda_fwd(self, q, k, v, g, beta, A_log=None, dt_bias=None, initial_state=None, scale=None,
                                output_final_state=False, inplace_final_state=True, state_v_first=False,
                                cu_seqlens=None, ssm_state_indices=None, num_accepted_tokens=None,
                                use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False,
                                use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, lower_bound=None, out=None):
        q, k, v, g, beta = whole(q, k, v, g, beta)
        write, state = "last", initial_state
        if not inplace_final_state:
            rows = q.shape[0] if cu_seqlens is None else cu_seqlens.numel() - 1
            if state is None:
                state = zeros(rows, v.shape[2], q.shape[3], q.shape[3], like=q)
            elif output_final_state:
                state = state.clone()
            write = "last" if output_final_state else "none"
        elif ssm_state_indices is not None:
            write = "each"  # the state behind token t goes where column t says
        if cu_seqlens is not None:
            q, k, v, g, beta = (x[0] for x in (q, k, v, g, beta))
        target = torch.zeros_like(v) if out is None else out.view(v.shape)
        with torch.no_grad():
            families.kda_decode(
                q, k, v, g, beta, state, A_log=flat(A_log), dt_bias=bias(dt_bias, g), slots=ssm_state_indices,
                accepted=num_accepted_tokens, cu_seqlens=cu_seqlens,
                num_tokens=None if cu_seqlens is None else max(1, _row_tokens(q[None], cu_seqlens, ssm_state_indices)),
                scale=scale, use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel, use_gate_in_kernel=use_gate_in_kernel,
                use_beta_sigmoid_in_kernel=use_beta_sigmoid_in_kernel, allow_neg_eigval=allow_neg_eigval,
                lower_bound=lower_bound, state_v_first=state_v_first, write=write, out=target)
        served["fused_recurrent_kda_fwd"] += 1
        final = state if inplace_final_state or output_final_state else None
        return (target[None] if cu_seqlens is not None and out is None else target if out is None else out), final

    @verifier
    def kda_gate_chunk_cumsum_verifier(g, A_log, chunk_size, scale=None, dt_bias=None, cu_seqlens=None,
                                       output_dtype=torch.float, chunk_indices=None, lower_bound=None, use_graph=False,
                                       **others):
        need(not others, f"attngen does not know {', '.join(others)}")
        need(g.dim() == 4 and g.shape[-1] in (64, 128), f"attngen needs g of [B, T, HV, 64 or 128], got {[*g.shape]}")
        device(g)
        need(g.dtype in (*KERNEL_DTYPES, torch.float32), f"attngen needs g of 16 bits or float32, got {g.dtype}")
        gradients(g, A_log, dt_bias)
        chunk(chunk_size)
        need(output_dtype in (torch.float32, None) and (output_dtype or g.dtype) is torch.float32,
              "attngen writes sums in float32")
        need(scale is not None and abs(scale - LOG2E) < 1e-6, f"attngen sums in base 2 (scale log2(e)), got {scale}")
        need(cu_seqlens is None or g.shape[0] == 1, "with cu_seqlens the batch is 1")
        gate(g, A_log, dt_bias, lower_bound)

    def kda_gate_chunk_cumsum(self, g, A_log, chunk_size, scale=None, dt_bias=None, cu_seqlens=None,
                              output_dtype=torch.float, chunk_indices=None, lower_bound=None, use_graph=False):
        with torch.no_grad():
            gk = families.kda_gate(g.contiguous(), A_log=flat(A_log), dt_bias=bias(dt_bias, g),
                                   lower_bound=lower_bound, cu_seqlens=cu_seqlens)
        served["kda_gate_chunk_cumsum"] += 1
        return gk

    @verifier
    def chunk_kda_fwd_intra_verifier(q, k, v, gk=None, beta=None, scale=None, cu_seqlens=None, chunk_size=64,
                                     chunk_indices=None, safe_gate=False, lower_bound=None, disable_recompute=False,
                                     use_graph=False):
        alike(q, k)
        need(gk is not None and beta is not None, "attngen needs gk and beta")
        tensors(q, v, q.shape[-1], k, gk, beta)
        fp32("gk", gk)
        side("beta", beta, q.dtype)
        need(beta.shape == v.shape[:3], "attngen needs one beta a head")
        chunk(chunk_size)

    def chunk_kda_fwd_intra(self, q, k, v, gk=None, beta=None, scale=None, cu_seqlens=None, chunk_size=64,
                            chunk_indices=None, safe_gate=False, lower_bound=None, disable_recompute=False,
                            use_graph=False):
        q, k, v, gk, beta = whole(q, k, v, gk, beta)
        with torch.no_grad():
            result = families.kda_chunk_intra(q, k, v, gk, beta, scale=scale, cu_seqlens=cu_seqlens,
                                              safe_gate=bool(safe_gate), with_qg=bool(disable_recompute))
        served["chunk_kda_fwd_intra"] += 1
        return result

    @verifier
    def recompute_w_u_fwd_verifier(k, v, beta, A, gk, q=None, cu_seqlens=None, chunk_indices=None, use_graph=False):
        tensors(k, v, k.shape[-1], q, beta, A, gk)
        need(q is None or (q.dtype is k.dtype and q.shape == k.shape), "attngen needs q and k of one shape and dtype")
        need(A.dtype is k.dtype, f"attngen needs A in {k.dtype}, got {A.dtype}")
        fp32("gk", gk)
        side("beta", beta, k.dtype)
        need(beta.shape == v.shape[:3], "attngen needs one beta a head")
        chunk(A.shape[-1])

    def recompute_w_u_fwd(self, k, v, beta, A, gk, q=None, cu_seqlens=None, chunk_indices=None, use_graph=False):
        k, v, beta, A, gk, q = whole(k, v, beta, A, gk, q)
        with torch.no_grad():
            result = families.kda_recompute_wu(k, v, beta, A, gk, q=q, cu_seqlens=cu_seqlens)
        served["recompute_w_u_fwd"] += 1
        return result


class Common(_fla_backward.Common, _Backend):
    """The state in front of each chunk, and the gradient of the one behind it."""

    @verifier
    def chunk_gated_delta_rule_fwd_h_verifier(k, w, u, g=None, gk=None, initial_state=None, output_final_state=False,
                                              chunk_size=64, save_new_value=True, state_v_first=False, cu_seqlens=None,
                                              cu_seqlens_cpu=None, chunk_indices=None, chunk_offsets=None):
        need(g is None and gk is not None, "attngen needs gates by channel (gk) alone")
        need(save_new_value, "attngen writes the new values")
        tensors(k, u, k.shape[-1], w, gk, initial_state)
        need(w.dtype is k.dtype and k.shape == u.shape == w.shape == gk.shape, "attngen needs k, w, u, gk alike")
        fp32("gk", gk)
        fp32("initial_state", initial_state)
        chunk(chunk_size)
        need(cu_seqlens is None or chunk_indices is not None, "attngen needs the number of chunks (chunk_indices)")

    def chunk_gated_delta_rule_fwd_h(self, k, w, u, g=None, gk=None, initial_state=None, output_final_state=False,
                                     chunk_size=64, save_new_value=True, state_v_first=False, cu_seqlens=None,
                                     cu_seqlens_cpu=None, chunk_indices=None, chunk_offsets=None):
        k, w, u, gk, initial_state = whole(k, w, u, gk, initial_state)
        with torch.no_grad():
            result = families.kda_chunk_h(k, w, u, gk, initial_state=initial_state,
                                          output_final_state=output_final_state, cu_seqlens=cu_seqlens,
                                          max_seqlen=longest(cu_seqlens, cu_seqlens_cpu),
                                          num_chunks=None if cu_seqlens is None else len(chunk_indices),
                                          state_v_first=state_v_first)
        served["chunk_gated_delta_rule_fwd_h"] += 1
        return result


class Norm(_fla_backward.Norm, _Backend):
    """Gradients through the L2 norm."""


class Gla(_Backend):
    """Outputs."""

    @verifier
    def chunk_gla_fwd_o_gk_verifier(q, v, g, A, h, scale, state_v_first=False, cu_seqlens=None, chunk_size=64,
                                    chunk_indices=None, use_graph=False):
        tensors(q, v, q.shape[-1], g, A, h)
        need(A.dtype is q.dtype and h.dtype is q.dtype, f"attngen needs A and h in {q.dtype}")
        fp32("g", g)
        chunk(chunk_size)
        chunk(A.shape[-1])

    def chunk_gla_fwd_o_gk(self, q, v, g, A, h, scale, state_v_first=False, cu_seqlens=None, chunk_size=64,
                           chunk_indices=None, use_graph=False):
        q, v, g, A, h = whole(q, v, g, A, h)
        with torch.no_grad():
            o = families.kda_chunk_o(q, v, g, A, h, scale=scale, cu_seqlens=cu_seqlens, state_v_first=state_v_first,
                                     out=output(v, cu_seqlens))
        served["chunk_gla_fwd_o_gk"] += 1
        return o


def _row_tokens(q, cu_seqlens, indices):
    """The most tokens of a row, as far as shapes say."""
    if cu_seqlens is None:
        return q.shape[1]
    if indices is not None:
        return 1 if indices.dim() == 1 else indices.shape[1]
    return q.shape[1]


class KdaOfOneRegistry(Prefill, Kda):
    """Where functions have no registry of their own, chunk_kda stands in its operation's."""


def register():
    """Registers the backends with FLA. Calls that are served count in `served`, declined ones stand in `declined`."""
    if of_function:
        from fla.modules.norm.l2norm import l2norm_bwd
        from fla.ops.kda import chunk_kda

        _register(chunk_kda)(Prefill)
        _register(l2norm_bwd)(Norm)
    else:
        _register("modules")(Norm)
    _register("gated_delta_rule")(Gdn)
    _register("kda")(Kda if of_function else KdaOfOneRegistry)
    _register("common")(Common)
    _register("gla")(Gla)
