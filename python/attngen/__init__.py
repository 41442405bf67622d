# SPDX-License-Identifier: MIT
"""Attention kernels that are compiled ahead of time: softmax attention, MLA decode, Lightning Attention, KDA, GDN.

Functions take tensors of torch (any device that the product has kernels for, or the CPU), or arrays of
NumPy and of JAX (on the CPU, where the reference in plain C runs). Outputs are allocated beside the
inputs unless they are given. A wrong argument is a ValueError or a TypeError with the library's message.

    import attngen
    o, state = attngen.kda_prefill(q, k, v, g, beta, output_final_state=True)
    o, state = attngen.kda(q, k, v, g, beta)                    # torch: with gradients
    print(attngen.explain("kda_prefill", q, k, v, g, beta))

docs/python.md is the reference of the package.
"""

from ._library import Library, Plan, explain, select
from .families import (BATCH_INVARIANT, DETERMINISTIC, SERIAL_LAUNCH, attn_fwd, attn_merge, attn_paged, gdn_decode,
                       gdn_prefill, gdn_step, kda_chunk_h, kda_chunk_intra, kda_chunk_o, kda_decode, kda_gate,
                       kda_prefill, kda_recompute_wu, kda_ring_accept, kda_ring_advance, kda_step, la_decode,
                       mla_decode, mla_sparse)
from .backward import (kda, kda_bwd, kda_bwd_dav, kda_bwd_dhu, kda_bwd_intra, kda_bwd_wy, kda_gate_bwd,
                       kda_qk_bwd)  # isort: skip

__version__ = "0.2.0"

__all__ = [
    "BATCH_INVARIANT", "DETERMINISTIC", "SERIAL_LAUNCH", "Library", "Plan", "as_flash_kda", "as_flash_mla",
    "attn_fwd", "attn_merge", "attn_paged", "explain", "gdn_decode", "gdn_prefill", "gdn_step", "kda", "kda_bwd",
    "kda_bwd_dav", "kda_bwd_dhu", "kda_bwd_intra", "kda_bwd_wy", "kda_chunk_h", "kda_chunk_intra", "kda_chunk_o",
    "kda_decode", "kda_gate", "kda_gate_bwd", "kda_prefill", "kda_qk_bwd", "kda_recompute_wu", "kda_ring_accept",
    "kda_ring_advance", "kda_step", "la_decode", "mla_decode", "mla_sparse", "select",
]


def as_flash_kda():
    """Makes `import flash_kda` give attngen's functions of that signature, and returns the module."""
    from . import flash_kda

    return flash_kda.install()


def as_flash_mla():
    """Makes `import flash_mla` give attngen's functions of that signature, and returns the module."""
    from . import flash_mla

    return flash_mla.install()
