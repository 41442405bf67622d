# SPDX-License-Identifier: MIT
"""KDA as a function that torch differentiates: kda_prefill forward, kda_bwd backward."""

import torch

from . import backward, families
from ._options import chunks


class _Kda(torch.autograd.Function):
    """Tensors first, then what is no tensor; both passes see the same raw inputs."""

    @staticmethod
    def forward(ctx, q, k, v, g, beta, initial_state, A_log, dt_bias, cu_seqlens, scale, output_final_state, norm, gate,
                sigmoid, negative, safe, lower_bound, v_first, max_seqlen, keep_states, library, flags):
        ctx.options = dict(scale=scale, use_qk_l2norm_in_kernel=norm, use_gate_in_kernel=gate,
                           use_beta_sigmoid_in_kernel=sigmoid, allow_neg_eigval=negative, safe_gate=safe,
                           lower_bound=lower_bound, state_v_first=v_first, max_seqlen=max_seqlen, library=library,
                           flags=flags)
        ctx.set_materialize_grads(False)
        states = None
        if keep_states:
            states = q.new_empty((chunks(q, cu_seqlens), v.shape[-2], q.shape[-1], v.shape[-1]))
        # Rows behind the last of packed sequences are zeros, as their gradients are.
        out = None if cu_seqlens is None else torch.zeros_like(v, memory_format=torch.contiguous_format)
        o, final_state = families.kda_prefill(q, k, v, g, beta, initial_state=initial_state, A_log=A_log,
                                              dt_bias=dt_bias, cu_seqlens=cu_seqlens, states=states, out=out,
                                              output_final_state=output_final_state, **ctx.options)
        ctx.save_for_backward(q, k, v, g, beta, initial_state, A_log, dt_bias, cu_seqlens, states)
        return o, final_state

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_o, d_final_state):
        q, k, v, g, beta, initial_state, A_log, dt_bias, cu_seqlens, states = ctx.saved_tensors
        d_o = torch.zeros_like(v) if d_o is None else d_o
        if d_final_state is not None:
            d_final_state = d_final_state.contiguous()
        d_q, d_k, d_v, d_g, d_beta, d_A_log, d_dt_bias, d_initial_state = backward.kda_bwd(
            q, k, v, g, beta, d_o.contiguous(), d_final_state=d_final_state, states=states,
            initial_state=initial_state, output_d_initial_state=ctx.needs_input_grad[5], A_log=A_log, dt_bias=dt_bias,
            cu_seqlens=cu_seqlens, **ctx.options)
        return (d_q, d_k, d_v, d_g, d_beta, d_initial_state, d_A_log, d_dt_bias) + (None,) * 14


def kda(*args):
    return _Kda.apply(*args)
