# SPDX-License-Identifier: MIT
"""attngen as a backend of flash-linear-attention (fla 0.6 or newer): `attngen.fla.register()`.

FLA asks the backends of a dispatched function in the order of their priorities; a verifier accepts a call or gives a
reason why it does not, which FLA logs once at level INFO and which `declined` keeps. What is not served goes the way
that it would have gone without attngen. FLA_ATTNGEN=0 turns the backend off.
"""

import collections
import functools

import torch
from fla.backends import BaseBackend
from fla.backends import register as _register

from . import _library, families

served = collections.Counter()  # calls by the name of FLA's function
declined = {}  # the last reason by the name of FLA's function

_LOG2E = 1.4426950408889634
_KERNEL_DTYPES = (torch.bfloat16, torch.float16)


class Declined(Exception):
    """Why a call is not served."""


def _need(condition, reason):
    if not condition:
        raise Declined(reason)


@functools.cache
def _missing(index):
    """Why the product has nothing for a GPU; None where it has."""
    about = torch.cuda.get_device_properties(index)
    try:
        _library.select("kda_prefill", device=f"sm_{about.major}{about.minor}:{about.multi_processor_count}", batch=1,
                        seq_len=64, num_qk_heads=1, num_v_heads=1, head_dim=128, dtype="bf16", gate_dtype="bf16",
                        beta_dtype="bf16")
    except ValueError as error:
        return str(error).splitlines()[0]
    return None


def _device(x):
    if x.device.type == "cuda":
        reason = _missing(x.device.index)
        _need(reason is None, reason)
    else:
        _need(x.device.type == "cpu", f"attngen needs tensors on CUDA or the CPU, got {x.device}")


def _alike(q, k):
    _need(q.dim() == 4 and k.shape == q.shape and k.dtype is q.dtype, "attngen needs q and k of one shape and dtype")


def _tensors(q, v, width, *others):
    """What all functions ask: dtypes, head dimensions, no gradient that would be lost."""
    _need(q.dtype in _KERNEL_DTYPES, f"attngen needs bfloat16 or float16, got {q.dtype}")
    _need(v is None or v.dtype is q.dtype, "attngen needs q, k and v of one dtype")
    _need(width in (64, 128), f"attngen needs K of 64 or 128, got {width}")
    _need(v is None or v.shape[-1] == width, f"attngen needs V = K = {width}, got {None if v is None else v.shape[-1]}")
    _device(q)
    _gradients(q, v, *others)


def _gradients(*tensors):
    if torch.is_grad_enabled():
        _need(not any(isinstance(x, torch.Tensor) and x.requires_grad for x in tensors),
              "attngen has no backward, and a gradient is required")


def _side(name, x, dtype):
    _need(x is None or x.dtype in (dtype, torch.float32), f"attngen needs {name} in {dtype} or float32")


def _fp32(name, x):
    _need(x is None or x.dtype is torch.float32, f"attngen needs {name} in float32")


def _gate(g, A_log, dt_bias, lower_bound):
    _fp32("A_log", A_log)
    _fp32("dt_bias", dt_bias)
    _need(A_log is None or A_log.numel() == g.shape[-2], "attngen needs an A_log for each value head")
    _need(dt_bias is None or dt_bias.numel() == g.shape[-2] * g.shape[-1],
          "attngen needs a dt_bias for each value head and channel")
    _need(lower_bound is None or -5 <= lower_bound < 0, f"attngen needs lower_bound in [-5, 0), got {lower_bound}")
    _need(A_log is not None or lower_bound is not None, "attngen needs A_log without lower_bound")


def _chunk(chunk_size):
    _need(chunk_size == 64, f"attngen has chunks of 64 tokens, got {chunk_size}")


def _whole(*tensors):
    return [None if x is None else x.contiguous() for x in tensors]


def _flat(x):
    return None if x is None else x.reshape(-1).contiguous()


def _bias(dt_bias, g):
    return None if dt_bias is None else dt_bias.reshape(g.shape[-2:]).contiguous()


def _longest(cu_seqlens, cu_seqlens_cpu):
    if cu_seqlens is None or cu_seqlens_cpu is None or cu_seqlens_cpu.numel() < 2:
        return None
    return int(cu_seqlens_cpu.diff().max())


def _output(v, cu_seqlens):
    """Of packed sequences, rows behind the last one are zero, which engines count on."""
    return torch.empty_like(v, memory_format=torch.contiguous_format) if cu_seqlens is None else torch.zeros_like(v)


def _zeros(*shape, like):
    return torch.zeros(shape, dtype=torch.float32, device=like.device)


def _verifier(check):
    """Makes FLA's (accepted, reason) of a check that raises Declined."""
    name = check.__name__[: -len("_verifier")]

    def verifier(self, *args, **kwargs):
        try:
            check(*args, **kwargs)
        except Declined as reason:
            declined[name] = str(reason)
            return False, str(reason)
        return True, None

    return verifier


class _Backend(BaseBackend):
    backend_type = "attngen"
    package_name = "attngen"
    env_var = "FLA_ATTNGEN"
    priority = 2  # before FlashKDA's 3 and the default 5


class Prefill(_Backend):
    """chunk_kda on kda_prefill, where no gradient is wanted."""

    @_verifier
    def chunk_kda_verifier(q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False,
                           use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, use_beta_sigmoid_in_kernel=False,
                           allow_neg_eigval=False, safe_gate=False, lower_bound=None, disable_recompute=False,
                           return_intermediate_states=False, state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None,
                           cp_context=None, use_graph=False, max_num_seqs=None, *, A_log=None, dt_bias=None,
                           chunk_size=64, **others):
        _need(not others, f"attngen does not know {', '.join(others)}")
        _alike(q, k)
        _tensors(q, v, q.shape[-1], k, g, beta, initial_state, A_log, dt_bias)
        _need(v.shape[2] % q.shape[2] == 0 and g.shape == (*v.shape[:3], q.shape[3]) and beta.shape == v.shape[:3],
              "attngen needs g of [B, T, HV, K] and beta of [B, T, HV]")
        _side("g", g, q.dtype)
        _side("beta", beta, q.dtype)
        _chunk(chunk_size)
        _need(cp_context is None, "attngen does not serve context parallelism across devices")
        _need(not return_intermediate_states, "attngen does not serve return_intermediate_states")
        _need(not allow_neg_eigval or use_beta_sigmoid_in_kernel, "allow_neg_eigval goes with beta's sigmoid")
        _need(cu_seqlens is None or q.shape[0] == 1, "with cu_seqlens the batch is 1")
        sequences = q.shape[0] if cu_seqlens is None else cu_seqlens.numel() - 1
        _need(initial_state is None or initial_state.shape == (sequences, v.shape[2], q.shape[3], q.shape[3]),
              "attngen needs an initial state for each sequence")
        _fp32("initial_state", initial_state)
        if use_gate_in_kernel:
            _gate(g, A_log, dt_bias, lower_bound)

    def chunk_kda(self, q, k, v, g, beta, scale=None, initial_state=None, output_final_state=False,
                  use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False, use_beta_sigmoid_in_kernel=False,
                  allow_neg_eigval=False, safe_gate=False, lower_bound=None, disable_recompute=False,
                  return_intermediate_states=False, state_v_first=False, cu_seqlens=None, cu_seqlens_cpu=None,
                  cp_context=None, use_graph=False, max_num_seqs=None, *, A_log=None, dt_bias=None, chunk_size=64):
        q, k, v, g, beta, initial_state = _whole(q, k, v, g, beta, initial_state)
        with torch.no_grad():
            result = families.kda_prefill(
                q, k, v, g, beta, scale=scale, initial_state=initial_state, output_final_state=output_final_state,
                use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel, use_gate_in_kernel=use_gate_in_kernel,
                use_beta_sigmoid_in_kernel=use_beta_sigmoid_in_kernel, allow_neg_eigval=allow_neg_eigval,
                safe_gate=safe_gate, lower_bound=lower_bound, state_v_first=state_v_first, cu_seqlens=cu_seqlens,
                max_seqlen=_longest(cu_seqlens, cu_seqlens_cpu), A_log=_flat(A_log), dt_bias=_bias(dt_bias, g),
                out=_output(v, cu_seqlens))
        served["chunk_kda"] += 1
        return result


class Kda(_Backend):
    """The functions of fla.ops.kda: a decode step, and three stages of the prefill, which training's forward runs."""

    @_verifier
    def fused_recurrent_kda_fwd_verifier(q, k, v, g, beta, A_log=None, dt_bias=None, initial_state=None, scale=None,
                                         output_final_state=False, inplace_final_state=True, state_v_first=False,
                                         cu_seqlens=None, ssm_state_indices=None, num_accepted_tokens=None,
                                         use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False,
                                         use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, lower_bound=None,
                                         out=None, **others):
        _need(not others, f"attngen does not know {', '.join(others)}")
        _alike(q, k)
        _tensors(q, v, q.shape[-1], k, g, beta, initial_state, A_log, dt_bias)
        _need(beta.shape == v.shape[:3], "attngen needs one beta a head")
        _need(g.shape == (*v.shape[:3], q.shape[3]), "attngen needs g of [B, T, HV, K]")
        _side("g", g, q.dtype)
        _side("beta", beta, q.dtype)
        _need(_row_tokens(q, cu_seqlens, ssm_state_indices) <= 8, "attngen's kda_decode has rows of 8 tokens at most, "
              "or with cu_seqlens 8 in all, for nothing is read back to know more")
        _fp32("initial_state", initial_state)
        _need(initial_state is not None or not (inplace_final_state or ssm_state_indices is not None),
              "attngen needs the state that is updated in place")
        _need(initial_state is None or initial_state.is_contiguous(), "attngen needs contiguous states")
        _need(ssm_state_indices is None or inplace_final_state, "attngen's pool of states is updated in place")
        _need(num_accepted_tokens is None or ssm_state_indices is not None, "num_accepted_tokens needs state indices")
        _need(not allow_neg_eigval or use_beta_sigmoid_in_kernel, "allow_neg_eigval goes with beta's sigmoid")
        _need(out is None or (out.is_contiguous() and out.dtype is v.dtype), "attngen needs a contiguous output")
        if use_gate_in_kernel:
            _gate(g, A_log, dt_bias, lower_bound)

    def fused_recurrent_kda_fwd(self, q, k, v, g, beta, A_log=None, dt_bias=None, initial_state=None, scale=None,
                                output_final_state=False, inplace_final_state=True, state_v_first=False,
                                cu_seqlens=None, ssm_state_indices=None, num_accepted_tokens=None,
                                use_qk_l2norm_in_kernel=False, use_gate_in_kernel=False,
                                use_beta_sigmoid_in_kernel=False, allow_neg_eigval=False, lower_bound=None, out=None):
        q, k, v, g, beta = _whole(q, k, v, g, beta)
        write, state = "last", initial_state
        if not inplace_final_state:
            rows = q.shape[0] if cu_seqlens is None else cu_seqlens.numel() - 1
            if state is None:
                state = _zeros(rows, v.shape[2], q.shape[3], q.shape[3], like=q)
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
                q, k, v, g, beta, state, A_log=_flat(A_log), dt_bias=_bias(dt_bias, g), slots=ssm_state_indices,
                accepted=num_accepted_tokens, cu_seqlens=cu_seqlens,
                num_tokens=None if cu_seqlens is None else max(1, _row_tokens(q[None], cu_seqlens, ssm_state_indices)),
                scale=scale, use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel, use_gate_in_kernel=use_gate_in_kernel,
                use_beta_sigmoid_in_kernel=use_beta_sigmoid_in_kernel, allow_neg_eigval=allow_neg_eigval,
                lower_bound=lower_bound, state_v_first=state_v_first, write=write, out=target)
        served["fused_recurrent_kda_fwd"] += 1
        final = state if inplace_final_state or output_final_state else None
        return (target[None] if cu_seqlens is not None and out is None else target if out is None else out), final

    @_verifier
    def kda_gate_chunk_cumsum_verifier(g, A_log, chunk_size, scale=None, dt_bias=None, cu_seqlens=None,
                                       output_dtype=torch.float, chunk_indices=None, lower_bound=None, use_graph=False,
                                       **others):
        _need(not others, f"attngen does not know {', '.join(others)}")
        _need(g.dim() == 4 and g.shape[-1] in (64, 128), f"attngen needs g of [B, T, HV, 64 or 128], got {[*g.shape]}")
        _device(g)
        _need(g.dtype in (*_KERNEL_DTYPES, torch.float32), f"attngen needs g of 16 bits or float32, got {g.dtype}")
        _gradients(g, A_log, dt_bias)
        _chunk(chunk_size)
        _need(output_dtype in (torch.float32, None) and (output_dtype or g.dtype) is torch.float32,
              "attngen writes sums in float32")
        _need(scale is not None and abs(scale - _LOG2E) < 1e-6, f"attngen sums in base 2 (scale log2(e)), got {scale}")
        _need(cu_seqlens is None or g.shape[0] == 1, "with cu_seqlens the batch is 1")
        _gate(g, A_log, dt_bias, lower_bound)

    def kda_gate_chunk_cumsum(self, g, A_log, chunk_size, scale=None, dt_bias=None, cu_seqlens=None,
                              output_dtype=torch.float, chunk_indices=None, lower_bound=None, use_graph=False):
        with torch.no_grad():
            gk = families.kda_gate(g.contiguous(), A_log=_flat(A_log), dt_bias=_bias(dt_bias, g),
                                   lower_bound=lower_bound, cu_seqlens=cu_seqlens)
        served["kda_gate_chunk_cumsum"] += 1
        return gk

    @_verifier
    def chunk_kda_fwd_intra_verifier(q, k, v, gk=None, beta=None, scale=None, cu_seqlens=None, chunk_size=64,
                                     chunk_indices=None, safe_gate=False, lower_bound=None, disable_recompute=False,
                                     use_graph=False):
        _alike(q, k)
        _need(gk is not None and beta is not None, "attngen needs gk and beta")
        _tensors(q, v, q.shape[-1], k, gk, beta)
        _fp32("gk", gk)
        _side("beta", beta, q.dtype)
        _need(beta.shape == v.shape[:3], "attngen needs one beta a head")
        _chunk(chunk_size)

    def chunk_kda_fwd_intra(self, q, k, v, gk=None, beta=None, scale=None, cu_seqlens=None, chunk_size=64,
                            chunk_indices=None, safe_gate=False, lower_bound=None, disable_recompute=False,
                            use_graph=False):
        q, k, v, gk, beta = _whole(q, k, v, gk, beta)
        with torch.no_grad():
            result = families.kda_chunk_intra(q, k, v, gk, beta, scale=scale, cu_seqlens=cu_seqlens,
                                              safe_gate=bool(safe_gate), with_qg=bool(disable_recompute))
        served["chunk_kda_fwd_intra"] += 1
        return result

    @_verifier
    def recompute_w_u_fwd_verifier(k, v, beta, A, gk, q=None, cu_seqlens=None, chunk_indices=None, use_graph=False):
        _tensors(k, v, k.shape[-1], q, beta, A, gk)
        _need(q is None or (q.dtype is k.dtype and q.shape == k.shape), "attngen needs q and k of one shape and dtype")
        _need(A.dtype is k.dtype, f"attngen needs A in {k.dtype}, got {A.dtype}")
        _fp32("gk", gk)
        _side("beta", beta, k.dtype)
        _need(beta.shape == v.shape[:3], "attngen needs one beta a head")
        _chunk(A.shape[-1])

    def recompute_w_u_fwd(self, k, v, beta, A, gk, q=None, cu_seqlens=None, chunk_indices=None, use_graph=False):
        k, v, beta, A, gk, q = _whole(k, v, beta, A, gk, q)
        with torch.no_grad():
            result = families.kda_recompute_wu(k, v, beta, A, gk, q=q, cu_seqlens=cu_seqlens)
        served["recompute_w_u_fwd"] += 1
        return result


class Common(_Backend):
    """The state in front of each chunk."""

    @_verifier
    def chunk_gated_delta_rule_fwd_h_verifier(k, w, u, g=None, gk=None, initial_state=None, output_final_state=False,
                                              chunk_size=64, save_new_value=True, state_v_first=False, cu_seqlens=None,
                                              cu_seqlens_cpu=None, chunk_indices=None, chunk_offsets=None):
        _need(g is None and gk is not None, "attngen needs gates by channel (gk) alone")
        _need(save_new_value, "attngen writes the new values")
        _tensors(k, u, k.shape[-1], w, gk, initial_state)
        _need(w.dtype is k.dtype and k.shape == u.shape == w.shape == gk.shape, "attngen needs k, w, u, gk alike")
        _fp32("gk", gk)
        _fp32("initial_state", initial_state)
        _chunk(chunk_size)
        _need(cu_seqlens is None or chunk_indices is not None, "attngen needs the number of chunks (chunk_indices)")

    def chunk_gated_delta_rule_fwd_h(self, k, w, u, g=None, gk=None, initial_state=None, output_final_state=False,
                                     chunk_size=64, save_new_value=True, state_v_first=False, cu_seqlens=None,
                                     cu_seqlens_cpu=None, chunk_indices=None, chunk_offsets=None):
        k, w, u, gk, initial_state = _whole(k, w, u, gk, initial_state)
        with torch.no_grad():
            result = families.kda_chunk_h(k, w, u, gk, initial_state=initial_state,
                                          output_final_state=output_final_state, cu_seqlens=cu_seqlens,
                                          max_seqlen=_longest(cu_seqlens, cu_seqlens_cpu),
                                          num_chunks=None if cu_seqlens is None else len(chunk_indices),
                                          state_v_first=state_v_first)
        served["chunk_gated_delta_rule_fwd_h"] += 1
        return result


class Gla(_Backend):
    """Outputs."""

    @_verifier
    def chunk_gla_fwd_o_gk_verifier(q, v, g, A, h, scale, state_v_first=False, cu_seqlens=None, chunk_size=64,
                                    chunk_indices=None, use_graph=False):
        _tensors(q, v, q.shape[-1], g, A, h)
        _need(A.dtype is q.dtype and h.dtype is q.dtype, f"attngen needs A and h in {q.dtype}")
        _fp32("g", g)
        _chunk(chunk_size)
        _chunk(A.shape[-1])

    def chunk_gla_fwd_o_gk(self, q, v, g, A, h, scale, state_v_first=False, cu_seqlens=None, chunk_size=64,
                           chunk_indices=None, use_graph=False):
        q, v, g, A, h = _whole(q, v, g, A, h)
        with torch.no_grad():
            o = families.kda_chunk_o(q, v, g, A, h, scale=scale, cu_seqlens=cu_seqlens, state_v_first=state_v_first,
                                     out=_output(v, cu_seqlens))
        served["chunk_gla_fwd_o_gk"] += 1
        return o


def _row_tokens(q, cu_seqlens, indices):
    """The most tokens of a row, as far as shapes say."""
    if cu_seqlens is None:
        return q.shape[1]
    if indices is not None:
        return 1 if indices.dim() == 1 else indices.shape[1]
    return q.shape[1]


def register():
    """Registers the backends with FLA. Calls that are served count in `served`, declined ones stand in `declined`."""
    from fla.ops.kda import chunk_kda

    _register(chunk_kda)(Prefill)
    _register("kda")(Kda)
    _register("common")(Common)
    _register("gla")(Gla)
