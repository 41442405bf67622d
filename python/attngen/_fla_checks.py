# SPDX-License-Identifier: MIT
"""What FLA's functions are asked before attngen serves them."""

import collections
import functools

import torch

from . import _library

served = collections.Counter()  # calls by the name of FLA's function
declined = {}  # the last reason by the name of FLA's function

LOG2E = 1.4426950408889634
KERNEL_DTYPES = (torch.bfloat16, torch.float16)


class Declined(Exception):
    """Why a call is not served."""


def need(condition, reason):
    if not condition:
        raise Declined(reason)


@functools.cache
def missing(index):
    """Why the product has nothing for a GPU; None where it has."""
    about = torch.cuda.get_device_properties(index)
    try:
        _library.select("kda_prefill", device=f"sm_{about.major}{about.minor}:{about.multi_processor_count}", batch=1,
                        seq_len=64, num_qk_heads=1, num_v_heads=1, head_dim=128, dtype="bf16", gate_dtype="bf16",
                        beta_dtype="bf16")
    except ValueError as error:
        return str(error).splitlines()[0]
    return None


def device(x):
    if x.device.type == "cuda":
        reason = missing(x.device.index)
        need(reason is None, reason)
    else:
        need(x.device.type == "cpu", f"attngen needs tensors on CUDA or the CPU, got {x.device}")


def alike(q, k):
    need(q.dim() == 4 and k.shape == q.shape and k.dtype is q.dtype, "attngen needs q and k of one shape and dtype")


def tensors(q, v, width, *others, differentiable=False):
    """What all functions ask: dtypes, head dimensions, no gradient that would be lost."""
    need(q.dtype in KERNEL_DTYPES, f"attngen needs bfloat16 or float16, got {q.dtype}")
    need(v is None or v.dtype is q.dtype, "attngen needs q, k and v of one dtype")
    need(width in (64, 128), f"attngen needs K of 64 or 128, got {width}")
    need(v is None or v.shape[-1] == width, f"attngen needs V = K = {width}, got {None if v is None else v.shape[-1]}")
    device(q)
    if not differentiable:
        gradients(q, v, *others)


def gradients(*tensors):
    if torch.is_grad_enabled():
        need(not any(isinstance(x, torch.Tensor) and x.requires_grad for x in tensors),
              "attngen has no gradient of this function, and one is required")


def side(name, x, dtype):
    need(x is None or x.dtype in (dtype, torch.float32), f"attngen needs {name} in {dtype} or float32")


def fp32(name, x):
    need(x is None or x.dtype is torch.float32, f"attngen needs {name} in float32")


def head_gate(g, A_log, dt_bias):
    """A gate a head, in the kernel."""
    fp32("A_log", A_log)
    fp32("dt_bias", dt_bias)
    need(A_log is not None and A_log.numel() == g.shape[-1], "attngen needs an A_log for each value head")
    need(dt_bias is None or dt_bias.numel() == g.shape[-1], "attngen needs a dt_bias for each value head")


def gate(g, A_log, dt_bias, lower_bound):
    fp32("A_log", A_log)
    fp32("dt_bias", dt_bias)
    need(A_log is None or A_log.numel() == g.shape[-2], "attngen needs an A_log for each value head")
    need(dt_bias is None or dt_bias.numel() == g.shape[-2] * g.shape[-1],
          "attngen needs a dt_bias for each value head and channel")
    need(lower_bound is None or -5 <= lower_bound < 0, f"attngen needs lower_bound in [-5, 0), got {lower_bound}")
    need(A_log is not None or lower_bound is not None, "attngen needs A_log without lower_bound")


def chunk(chunk_size):
    need(chunk_size == 64, f"attngen has chunks of 64 tokens, got {chunk_size}")


def whole(*tensors):
    return [None if x is None else x.contiguous() for x in tensors]


def flat(x):
    return None if x is None else x.reshape(-1).contiguous()


def bias(dt_bias, g):
    return None if dt_bias is None else dt_bias.reshape(g.shape[-2:]).contiguous()


def longest(cu_seqlens, cu_seqlens_cpu):
    if cu_seqlens is None or cu_seqlens_cpu is None or cu_seqlens_cpu.numel() < 2:
        return None
    return int(cu_seqlens_cpu.diff().max())


def output(v, cu_seqlens):
    """Of packed sequences, rows behind the last one are zero, which engines count on."""
    return torch.empty_like(v, memory_format=torch.contiguous_format) if cu_seqlens is None else torch.zeros_like(v)


def zeros(*shape, like):
    return torch.zeros(shape, dtype=torch.float32, device=like.device)


def verifier(check):
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
