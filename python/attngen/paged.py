# SPDX-License-Identifier: MIT
"""Calls that engines make of other libraries for attention over paged caches, on attngen's attn_paged and attn_merge.

Names, arguments and results are those of FlashAttention-3 (flash_attn_with_kvcache), of vLLM (flash_attn_varlen_func,
merge_attn_states) and of FlashInfer (merge_state, merge_states). What splits and schedules work is taken and ignored:
the work is cut on the device at each call. What is not served raises ValueError and names the argument.
"""

from .families import attn_merge, attn_paged


def _refuse(name, given):
    for argument, value in given.items():
        if value is not None and value is not False:
            raise ValueError(f"{name} by attngen: {argument} is not served; allowed: None or False")


def _window(name, window_size, causal):
    left, right = (-1, -1) if window_size is None else window_size
    if right not in (-1, 0) or (right == 0 and not causal and left < 0):
        raise ValueError(f"{name} by attngen: window_size is {tuple(window_size)} with causal {bool(causal)}; allowed "
                         "on the right: -1, or 0 with a window or causal")
    return left, causal or right == 0


def flash_attn_with_kvcache(q, k_cache, v_cache, k=None, v=None, qv=None, rotary_cos=None, rotary_sin=None,
                            cache_seqlens=None, cache_batch_idx=None, cache_leftpad=None, page_table=None,
                            cu_seqlens_q=None, cu_seqlens_k_new=None, max_seqlen_q=None, rotary_seqlens=None,
                            q_descale=None, k_descale=None, v_descale=None, softmax_scale=None, causal=False,
                            window_size=(-1, -1), attention_chunk=0, softcap=0.0, rotary_interleaved=True,
                            scheduler_metadata=None, num_splits=0, pack_gqa=None, sm_margin=0,
                            return_softmax_lse=False, **options):
    """FlashAttention-3's: q [B, T, H, D], or with cu_seqlens_q [tokens, H, D]; k_cache, v_cache [pages, P, HK, D] with
    page_table [B, width], else [B, rows, HK, D]; cache_seqlens [B] int32. New keys are in the cache already.
    Returns out, as q, and with return_softmax_lse (out, lse), lse natural, [B, H, T] or [H, tokens].
    """
    name = "flash_attn_with_kvcache"
    _refuse(name, {"k": k, "v": v, "qv": qv, "rotary_cos": rotary_cos, "rotary_sin": rotary_sin,
                   "cache_leftpad": cache_leftpad, "cu_seqlens_k_new": cu_seqlens_k_new,
                   "rotary_seqlens": rotary_seqlens, "attention_chunk": attention_chunk or None})
    if cache_seqlens is None or isinstance(cache_seqlens, int):
        raise ValueError(f"{name} by attngen: cache_seqlens is {cache_seqlens}; allowed: a tensor of [batch] int32")
    if cache_batch_idx is not None:
        if page_table is not None:
            raise ValueError(f"{name} by attngen: cache_batch_idx and page_table exclude each other")
        page_table = cache_batch_idx.reshape(-1, 1)  # a request is a page
    left, causal = _window(name, window_size, causal)
    packed = cu_seqlens_q is not None
    rows = q if packed else q.reshape(-1, *q.shape[2:])
    found = attn_paged(rows, k_cache, v_cache, cache_seqlens, page_table, q_indptr=cu_seqlens_q,
                       q_len=max_seqlen_q if packed else q.shape[1], causal=bool(causal), window_left=left,
                       scale=softmax_scale, softcap=softcap, q_descale=q_descale, k_descale=k_descale,
                       v_descale=v_descale, return_lse=return_softmax_lse, **options)
    if not return_softmax_lse:
        return found.reshape(q.shape)
    out, lse = found
    return out.reshape(q.shape), lse.T if packed else lse.reshape(q.shape[:3]).swapaxes(1, 2)


def flash_attn_varlen_func(q, k, v, max_seqlen_q, cu_seqlens_q, max_seqlen_k, cu_seqlens_k=None, seqused_k=None,
                           q_v=None, dropout_p=0.0, softmax_scale=None, causal=False, window_size=None, softcap=0.0,
                           alibi_slopes=None, deterministic=False, return_attn_probs=False, block_table=None,
                           return_softmax_lse=False, out=None, scheduler_metadata=None, q_descale=None,
                           k_descale=None, v_descale=None, num_splits=0, fa_version=3, s_aux=None, **options):
    """vLLM's, over a paged cache: q [tokens, H, D], k, v [pages, P, HK, D], block_table [B, width], seqused_k [B]
    int32, s_aux [H] the sinks. Returns out, and with return_softmax_lse (out, lse), lse natural, [H, tokens].
    """
    name = "flash_attn_varlen_func"
    _refuse(name, {"cu_seqlens_k": cu_seqlens_k, "q_v": q_v, "dropout_p": dropout_p or None,
                   "alibi_slopes": alibi_slopes, "return_attn_probs": return_attn_probs})
    if block_table is None or seqused_k is None:
        raise ValueError(f"{name} by attngen: block_table and seqused_k are wanted")
    left, causal = _window(name, window_size, causal)
    found = attn_paged(q, k, v, seqused_k, block_table, q_indptr=cu_seqlens_q, q_len=max_seqlen_q,
                       max_kv_len=max_seqlen_k, causal=bool(causal), window_left=left, scale=softmax_scale,
                       softcap=softcap, sink=s_aux, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale,
                       return_lse=return_softmax_lse, out=out, **options)
    return (found[0], found[1].T) if return_softmax_lse else found


def merge_state(v_a, s_a, v_b, s_b, **options):
    """FlashInfer's: v_a, v_b [tokens, H, D], s_a, s_b [tokens, H] to base 2. Returns (v, s)."""
    return attn_merge(v_a, s_a, v_b, s_b, lse_base_2=True, **options)


def merge_states(v, s, **options):
    """FlashInfer's: v [tokens, states, H, D], s [tokens, states, H] to base 2. Returns (v, s)."""
    return attn_merge(v, s, lse_base_2=True, **options)


def merge_attn_states(output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse=None,
                      prefill_tokens_with_context=None, output_scale=None):
    """vLLM's: outputs [tokens, H, D], lse [H, tokens] natural. Rows from prefill_tokens_with_context on have no prefix
    and are the suffix's. Writes output, and output_lse where it is given.
    """
    _refuse("merge_attn_states", {"output_scale": output_scale})
    tokens = output.shape[0] if prefill_tokens_with_context is None else prefill_tokens_with_context
    attn_merge(prefix_output[:tokens], prefix_lse.T[:tokens], suffix_output[:tokens], suffix_lse.T[:tokens],
               return_lse=False, out=output[:tokens], out_lse=None if output_lse is None else output_lse.T[:tokens])
    output[tokens:] = suffix_output[tokens:]
    if output_lse is not None:
        output_lse[:, tokens:] = suffix_lse[:, tokens:]
