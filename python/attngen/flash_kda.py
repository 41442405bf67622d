# SPDX-License-Identifier: MIT
"""The functions of FlashKDA's interface, which FLA, SGLang and vLLM call, on attngen's kda_prefill.

attngen.as_flash_kda() lets `import flash_kda` find them. q and k are normalized, beta goes through the sigmoid and g
through the gate with a lower bound in the kernel, as there; states are [V, K].
"""

import sys

from .families import kda_prefill


def install():
    """Makes `import flash_kda` give this module. Raises RuntimeError where another one is imported already."""
    module = sys.modules[__name__]
    if sys.modules.setdefault("flash_kda", module) is not module:
        raise RuntimeError("flash_kda is imported already, from "
                           f"{getattr(sys.modules['flash_kda'], '__file__', '?')}: call attngen.as_flash_kda() before")
    return module


def get_workspace_size(T, H, N=1):
    """0: the workspace comes from torch's allocator at each call, and one that is given is not looked at."""
    return 0


def fwd(q, k, v, g, beta, scale, out, A_log, dt_bias, lower_bound, initial_state=None, final_state=None,
        cu_seqlens=None, workspace=None, checkpoint_state=None, checkpoint_offsets=None):
    """KDA's forward into `out` and, where it is given, `final_state`.

    q, k, v, g: [B, T, H, 128] bfloat16 and beta: [B, T, H] logits; A_log: [H], dt_bias: [H, 128] float32; lower_bound:
    -5 to below 0; initial_state, final_state: [N, H, 128, 128] bfloat16 or float32, [V, K]; cu_seqlens: [N + 1] int64
    or int32.
    bfloat16 states are copied on the device, in float32. Checkpoints are not served.
    """
    import torch

    if checkpoint_state is not None or checkpoint_offsets is not None:
        raise ValueError("flash_kda.fwd by attngen: checkpoint_state is not served; allowed: None")
    if lower_bound is None:
        raise ValueError("flash_kda.fwd by attngen: lower_bound is None; allowed: -5 to below 0")
    with torch.no_grad():
        state = None if initial_state is None else initial_state.to(torch.float32).contiguous()
        last = final_state
        if final_state is not None and (final_state.dtype is not torch.float32 or not final_state.is_contiguous()):
            last = torch.empty(final_state.shape, dtype=torch.float32, device=final_state.device)
        kda_prefill(q, k, v, g, beta, scale=scale, initial_state=state, final_state=last, use_qk_l2norm_in_kernel=True,
                    use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True, lower_bound=lower_bound,
                    state_v_first=True, cu_seqlens=cu_seqlens, A_log=A_log, dt_bias=dt_bias, out=out)
        if last is not final_state:
            final_state.copy_(last)
