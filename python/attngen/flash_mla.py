# SPDX-License-Identifier: MIT
"""The functions of FlashMLA's interface for decoding, on attngen's mla_decode and mla_sparse.

attngen.as_flash_mla() lets `import flash_mla` find them. The work is cut on the device at each call, so the metadata
that get_mla_metadata() returns is empty and may be kept or made anew.
"""

import sys

from .families import mla_decode, mla_sparse


def install():
    """Makes `import flash_mla` give this module. Raises RuntimeError where another one is imported already."""
    module = sys.modules[__name__]
    if sys.modules.setdefault("flash_mla", module) is not module:
        raise RuntimeError("flash_mla is imported already, from "
                           f"{getattr(sys.modules['flash_mla'], '__file__', '?')}: call attngen.as_flash_mla() before")
    return module


def get_mla_metadata(cache_seqlens=None, *args, **kwargs):
    """(tile_scheduler_metadata, num_splits), both empty."""
    if cache_seqlens is None:
        return None, None
    none = cache_seqlens.new_empty(0)
    return none, none


def flash_mla_with_kvcache(q, k_cache, block_table, cache_seqlens, head_dim_v, tile_scheduler_metadata=None,
                           num_splits=None, softmax_scale=None, causal=False, is_fp8_kvcache=False, indices=None,
                           attn_sink=None, topk_length=None, **others):
    """Decodes [B, Sq, H, 576] queries over a paged cache [pages, page_size, 1, 576]; returns (out, lse).

    q, k_cache: bfloat16 or float16; block_table: [B, pages of a request], cache_seqlens: [B] int32; head_dim_v: 512.
    With indices of [B, Sq, topk] int32, each the number of a row of the cache, those rows are attended, and
    block_table, cache_seqlens and causal are not looked at; with is_fp8_kvcache rows are of 656 bytes. attn_sink: [H]
    float32; topk_length: [B] int32. Without indices neither is served.
    out: [B, Sq, H, 512]; lse: [B, H, Sq] float32, natural, -inf where no row counts.
    """
    given = [name for name, value in others.items() if value is not None]
    if indices is None:
        given += [name for name, value in (("attn_sink", attn_sink), ("topk_length", topk_length)) if value is not None]
        given = ["is_fp8_kvcache without indices"] if is_fp8_kvcache else given
    if given:
        raise ValueError(f"flash_mla_with_kvcache by attngen: {given[0]} is not served; allowed: None or False")
    if head_dim_v != 512 or q.shape[-1] != 576 or k_cache.shape[-2] != 1:
        raise ValueError(f"flash_mla_with_kvcache by attngen: q has {q.shape[-1]} columns, k_cache {k_cache.shape[-2]} "
                         f"heads and head_dim_v is {head_dim_v}; allowed: 576, 1 and 512")
    B, T, H, _ = q.shape
    rows, cache = q.reshape(B * T, H, 576), k_cache[:, :, 0]
    scale = 576 ** -0.5 if softmax_scale is None else softmax_scale
    if indices is not None:
        o, lse = mla_sparse(rows[..., :512], rows[..., 512:], cache, indices, topk_length=topk_length, sink=attn_sink,
                            scale=scale, return_lse=True)
    else:
        o, lse = mla_decode(rows[..., :512], rows[..., 512:], cache[..., :512], cache[..., 512:], cache_seqlens,
                            block_table, q_len=T, scale=scale, causal=bool(causal), return_lse=True)
    return o.reshape(B, T, H, 512), lse.reshape(B, T, H).transpose(1, 2)
