# SPDX-License-Identifier: MIT
"""attngen.paged: the calls of FlashAttention-3, vLLM and FlashInfer, against the definition, on NumPy arrays."""

import numpy as np
import pytest

import reference as ref
from attngen import paged

B, T, H, G, D, P = 3, 2, 4, 2, 64, 16
LENGTHS = np.array([2, 30, 47], np.int32)


@pytest.fixture
def cache():
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal(shape).astype(np.float16) for shape in
               ((B, T, H, D), (9, P, G, D), (9, P, G, D)))
    return q, k, v, rng.permutation(9).reshape(3, 3).astype(np.int32)


def expected(q, k, v, table, **options):
    """o [B, T, H, D] and lse [B, H, T], of pages or of rows."""
    o, lse = np.zeros(q.shape), np.zeros((B, H, T))
    for b, n in enumerate(LENGTHS):
        k_b, v_b = (x[table[b]].reshape(1, -1, G, D)[:, :n] if table is not None else x[b:b + 1, :n] for x in (k, v))
        o[b:b + 1], lse[b:b + 1] = ref.attention(q[b:b + 1], k_b, v_b, **options)
    return o, lse


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"causal": True, "window": (7, 0)}, {"softcap": 3.0}])
def test_flash_attn_with_kvcache(cache, options):
    q, k, v, table = cache
    given = {("window_size" if name == "window" else name): value for name, value in options.items()}
    wanted, wanted_lse = expected(q, k, v, table, **{**options, **({"window": (7, -1)} if "window" in options else {})})
    o, lse = paged.flash_attn_with_kvcache(q, k, v, cache_seqlens=LENGTHS, page_table=table, num_splits=4,
                                           return_softmax_lse=True, **given)
    assert o.shape == q.shape and ref.relative(o, wanted) < 1e-3 and np.allclose(lse, wanted_lse, atol=2e-3)
    packed = q.reshape(-1, H, D)
    cu = np.arange(B + 1, dtype=np.int32) * T
    again, lse_packed = paged.flash_attn_with_kvcache(packed, k, v, cache_seqlens=LENGTHS, page_table=table,
                                                      cu_seqlens_q=cu, max_seqlen_q=T, return_softmax_lse=True, **given)
    assert np.array_equal(again.reshape(q.shape), o)
    assert np.array_equal(lse_packed, lse.swapaxes(0, 1).reshape(H, -1))


def test_flash_attn_with_kvcache_of_rows_and_of_chosen_batches(cache):
    q, k, v, table = cache
    rows = [np.stack([x[pages].reshape(-1, G, D) for pages in table]) for x in (k, v)]
    o = paged.flash_attn_with_kvcache(q, *rows, cache_seqlens=LENGTHS, causal=True)
    assert ref.relative(o, expected(q, k, v, table, causal=True)[0]) < 1e-3
    turned = [x[[2, 0, 1]] for x in rows]
    again = paged.flash_attn_with_kvcache(q, *turned, cache_seqlens=LENGTHS, causal=True,
                                          cache_batch_idx=np.array([1, 2, 0], np.int32))
    assert np.array_equal(again, o)


def test_flash_attn_varlen_func(cache):
    q, k, v, table = cache
    cu, sink = np.arange(B + 1, dtype=np.int32) * T, np.array([0.5, -2, 1, 0], np.float32)
    o, lse = paged.flash_attn_varlen_func(q.reshape(-1, H, D), k, v, T, cu, 48, seqused_k=LENGTHS, block_table=table,
                                          causal=True, window_size=(-1, 0), s_aux=sink, return_softmax_lse=True)
    wanted, wanted_lse = expected(q, k, v, table, causal=True)
    share = np.exp(wanted_lse - np.logaddexp(wanted_lse, sink[:, None])).swapaxes(1, 2)[..., None]
    assert ref.relative(o.reshape(q.shape), wanted * share) < 1e-3
    assert np.allclose(lse.reshape(H, B, T).swapaxes(0, 1), wanted_lse, atol=2e-3)  # without the sink


def test_merges(cache):
    q, k, v, table = cache
    rng = np.random.default_rng(4)
    values = rng.standard_normal((5, 3, H, D)).astype(np.float16)
    lse = rng.standard_normal((5, 3, H)).astype(np.float32) * 3
    weights = np.exp2(lse) / np.exp2(lse).sum(1, keepdims=True)
    wanted = (weights[..., None] * values.astype(float)).sum(1)
    o, s = paged.merge_states(values, lse)
    assert ref.relative(o, wanted) < 1e-3 and np.allclose(s, np.log2(np.exp2(lse).sum(1)), atol=1e-4)
    a, b = (np.ascontiguousarray(values[:, i]) for i in (0, 1))
    lse_a, lse_b = (np.ascontiguousarray(lse[:, i]) for i in (0, 1))
    two, s = paged.merge_state(a, lse_a, b, lse_b)
    assert np.allclose(s, np.logaddexp2(lse_a, lse_b), atol=1e-4)
    natural = [np.ascontiguousarray(x.T * np.float32(np.log(2))) for x in (lse_a, lse_b)]
    out, out_lse = np.empty_like(a), np.empty_like(natural[0])
    paged.merge_attn_states(out, a, natural[0], b, natural[1], out_lse, prefill_tokens_with_context=3)
    assert ref.relative(out[:3], two[:3]) < 1e-3 and np.array_equal(out[3:], b[3:])
    assert np.allclose(out_lse[:, :3].T, s[:3] * np.log(2), atol=1e-4)
    assert np.array_equal(out_lse[:, 3:], natural[1][:, 3:])


def test_what_is_not_served_is_named(cache):
    q, k, v, table = cache
    with pytest.raises(ValueError, match="rotary_cos is not served"):
        paged.flash_attn_with_kvcache(q, k, v, cache_seqlens=LENGTHS, page_table=table, rotary_cos=q)
    with pytest.raises(ValueError, match="cache_seqlens is 5"):
        paged.flash_attn_with_kvcache(q, k, v, cache_seqlens=5, page_table=table)
    with pytest.raises(ValueError, match=r"window_size is \(3, 2\)"):
        paged.flash_attn_with_kvcache(q, k, v, cache_seqlens=LENGTHS, page_table=table, window_size=(3, 2))
    with pytest.raises(ValueError, match="alibi_slopes is not served"):
        paged.flash_attn_varlen_func(q[0], k, v, T, None, 48, alibi_slopes=LENGTHS)
    with pytest.raises(ValueError, match="block_table and seqused_k"):
        paged.flash_attn_varlen_func(q[0], k, v, T, None, 48)
    with pytest.raises(ValueError, match="output_scale is not served"):
        paged.merge_attn_states(q[0], q[0], None, q[0], None, output_scale=1.0)
