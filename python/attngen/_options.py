# SPDX-License-Identifier: MIT
"""What the families' keywords stand for in the calls below Python."""

DETERMINISTIC = 1
BATCH_INVARIANT = 2
SERIAL_LAUNCH = 4


def handle(library):
    return 0 if library is None else library.handle


def gate_form(use_gate_in_kernel, lower_bound):
    return 0 if not use_gate_in_kernel else 1 if lower_bound is None else 2


def beta_form(use_beta_sigmoid_in_kernel, allow_neg_eigval):
    if allow_neg_eigval and not use_beta_sigmoid_in_kernel:
        raise ValueError("allow_neg_eigval is True without use_beta_sigmoid_in_kernel, which it goes with")
    return 0 if not use_beta_sigmoid_in_kernel else 2 if allow_neg_eigval else 1


def bias(dt_bias, g):
    return dt_bias.reshape(g.shape[-2], g.shape[-1]) if dt_bias is not None and len(dt_bias.shape) == 1 else dt_bias


def longest(xp, cu_seqlens, max_seqlen):
    return xp.longest(cu_seqlens) if max_seqlen is None and cu_seqlens is not None else max_seqlen


def sequences(q, cu_seqlens):
    """Their number, of tensors of [B, T, H, K], or [T, H, K]."""
    if cu_seqlens is not None:
        return cu_seqlens.shape[0] - 1
    return q.shape[0] if len(q.shape) == 4 else 1


def chunks(q, cu_seqlens):
    """Chunks of 64 tokens that all sequences have, at most."""
    tokens = q.shape[-3]
    return sequences(q, None) * ((tokens + 63) // 64) if cu_seqlens is None else tokens // 64 + sequences(q, cu_seqlens)
