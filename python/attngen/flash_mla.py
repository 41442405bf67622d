# SPDX-License-Identifier: MIT
"""The functions of FlashMLA's interface for dense decoding, on attngen's mla_decode.

attngen.as_flash_mla() lets `import flash_mla` find them. The work is cut on the device at each call, so the metadata
that get_mla_metadata() returns is empty and may be kept or made anew.
"""

import sys

from .families import mla_decode


def install():
    """Makes `import flash_mla` give this module. Raises RuntimeError where another one is imported already."""
    module = sys.modules[__name__]
    if sys.modules.setdefault("flash_mla", module) is not module:
        raise RuntimeError("flash_mla is imported already, from "
                           f"{getattr(sys.modules['flash_mla'], '__file__', '?')}: call attngen.as_flash_mla() before")
    return module


def get_mla_metadata(cache_seqlens=None, *args, **kwargs):
    """(tile_scheduler_metadata, num_splits), both empty."""
    if kwargs.get("topk") is not None or kwargs.get("is_fp8_kvcache"):
        raise ValueError("flash_mla by attngen: sparse attention and its 8-bit cache are not served")
    if cache_seqlens is None:
        return None, None
    none = cache_seqlens.new_empty(0)
    return none, none


def flash_mla_with_kvcache(q, k_cache, block_table, cache_seqlens, head_dim_v, tile_scheduler_metadata=None,
                           num_splits=None, softmax_scale=None, causal=False, is_fp8_kvcache=False, indices=None,
                           **others):
    """Decodes [B, Sq, H, 576] queries over a paged cache [pages, page_size, 1, 576]; returns (out, lse).

    q, k_cache: bfloat16 or float16; block_table: [B, pages of a request], cache_seqlens: [B] int32; head_dim_v: 512.
    out: [B, Sq, H, 512]; lse: [B, H, Sq] float32, natural. Sparse indices and 8-bit caches are not served.
    """
    given = [name for name, value in others.items() if value is not None]
    if is_fp8_kvcache or indices is not None or given:
        what = "is_fp8_kvcache" if is_fp8_kvcache else "indices" if indices is not None else given[0]
        raise ValueError(f"flash_mla_with_kvcache by attngen: {what} is not served; allowed: None or False")
    if head_dim_v != 512 or q.shape[-1] != 576 or k_cache.shape[-2] != 1:
        raise ValueError(f"flash_mla_with_kvcache by attngen: q has {q.shape[-1]} columns, k_cache {k_cache.shape[-2]} "
                         f"heads and head_dim_v is {head_dim_v}; allowed: 576, 1 and 512")
    B, T, H, _ = q.shape
    rows, cache = q.reshape(B * T, H, 576), k_cache[:, :, 0]
    o, lse = mla_decode(rows[..., :512], rows[..., 512:], cache[..., :512], cache[..., 512:], cache_seqlens,
                        block_table, q_len=T, scale=576 ** -0.5 if softmax_scale is None else softmax_scale,
                        causal=bool(causal), return_lse=True)
    return o.reshape(B, T, H, 512), lse.reshape(B, T, H).transpose(1, 2)
