# SPDX-License-Identifier: MIT
"""Softmax attention on NumPy's arrays, against the definitions in reference.py."""

import numpy as np
import pytest

import attngen
import reference as ref
from test_families import normal


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (5, 3)}, {"softcap": 2.0, "scale": 0.3}])
def test_attention_has_the_values_of_its_definition(rng, dtype, tolerance, options):
    q, k, v = (normal(rng, dtype, 2, n, h, 64) for n, h in ((17, 4), (23, 2), (23, 2)))
    o, lse = attngen.attn_fwd(q, k, v, return_lse=True, **options)
    expected, expected_lse = ref.attention(q, k, v, **options)
    assert o.dtype == dtype and ref.relative(o, expected) < tolerance
    assert np.allclose(lse, expected_lse, atol=1e-3)


def test_attention_of_packed_sequences_is_that_of_each(rng, dtype, tolerance):
    cu_q, cu_k = np.array([0, 5, 5, 12], np.int32), np.array([0, 9, 11, 20], np.int32)
    q, k, v = normal(rng, dtype, 12, 2, 64), normal(rng, dtype, 20, 2, 64), normal(rng, dtype, 20, 2, 64)
    o = attngen.attn_fwd(q, k, v, causal=True, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, max_seqlen_q=7, max_seqlen_k=9)
    for n in range(3):
        a, b = slice(cu_q[n], cu_q[n + 1]), slice(cu_k[n], cu_k[n + 1])
        if a.stop > a.start:
            expected, _ = ref.attention(q[None, a], k[None, b], v[None, b], causal=True)
            assert ref.relative(o[a], expected[0]) < tolerance


def test_attention_takes_strided_views(rng, dtype, tolerance):
    fused = normal(rng, dtype, 2, 9, 3, 2, 64)
    q, k, v = fused[:, :, 0], fused[:, :, 1], fused[:, :, 2]
    assert ref.relative(attngen.attn_fwd(q, k, v), ref.attention(q, k, v)[0]) < tolerance
    heads_first = normal(rng, dtype, 2, 2, 9, 64).transpose(0, 2, 1, 3)
    assert ref.relative(attngen.attn_fwd(heads_first, k, v), ref.attention(heads_first, k, v)[0]) < tolerance


def test_attention_of_eight_bits_takes_descales(rng):
    import ml_dtypes

    q, k, v = (normal(rng, ml_dtypes.float8_e4m3fn, 1, 16, 2, 64) for _ in range(3))
    descale = np.full((1, 2), 0.5, np.float32)
    o = attngen.attn_fwd(q, k, v, q_descale=descale, v_descale=descale, out_dtype="float16")
    expected, _ = ref.attention(q.astype(float) * 0.5, k, v.astype(float) * 0.5)
    assert o.dtype == np.float16 and ref.relative(o, expected) < 0.05


def paged_reference(q, k, v, lengths, pages, q_len, **options):
    """o and lse, token by token; k, v: [pages, page_size, HK, D]."""
    o, lse = np.zeros((*q.shape[:2], v.shape[-1])), np.full(q.shape[:2], -np.inf)
    for b, n in enumerate(lengths):
        rows = slice(b * q_len, (b + 1) * q_len)
        k_b, v_b = (x[pages[b]].reshape(1, -1, *x.shape[2:])[:, :n] for x in (k, v))
        if n:
            o_b, lse_b = ref.attention(q[None, rows], k_b, v_b, causal=True, **options)
            o[rows], lse[rows] = o_b[0], lse_b[0].T
    return o, lse


@pytest.mark.parametrize("q_len", [1, 3])
def test_attn_paged_reads_pages(rng, dtype, tolerance, q_len):
    lengths, page_size, H, G = np.array([0, 17, 33], np.int32), 5, 6, 2
    pages = rng.permutation(30).reshape(3, 10).astype(np.int32)
    q = normal(rng, dtype, 3 * q_len, H, 64)
    k, v = normal(rng, dtype, 30, page_size, G, 64), normal(rng, dtype, 30, page_size, G, 64)
    for options, given in (({}, {}), ({"window": (9, -1), "softcap": 4.0}, {"window_left": 9, "softcap": 4.0})):
        o, lse = attngen.attn_paged(q, k, v, lengths, pages, return_lse=True, **given)
        expected, expected_lse = paged_reference(q, k, v, lengths, pages, q_len, **options)
        assert ref.relative(o, expected) < tolerance
        seen = np.isfinite(expected_lse)
        assert np.allclose(lse[seen], expected_lse[seen], atol=2e-3) and np.isneginf(lse[~seen]).all()
    o = attngen.attn_paged(q, k, v, lengths, pages)
    heads_first = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in (k, v)]
    assert np.array_equal(attngen.attn_paged(q, *heads_first, lengths, pages, kv_layout="HND"), o)
    joint = np.stack([k, v], 1)
    assert np.array_equal(attngen.attn_paged(q, joint[:, 0], joint[:, 1], lengths, pages), o)
    used = [row[:(n + page_size - 1) // page_size] for row, n in zip(pages, lengths)]
    indptr = np.cumsum([0] + [len(row) for row in used])
    last = np.array([(n - 1) % page_size + 1 if n else 0 for n in lengths])
    listed = attngen.attn_paged(q, k, v, None, np.concatenate(used), page_indptr=indptr, last_page_len=last,
                                max_kv_len=64)
    assert np.array_equal(listed, o)
    ragged = attngen.attn_paged(q, k, v, lengths, pages, q_indptr=np.arange(4) * q_len, q_len=q_len + 2)
    assert np.array_equal(ragged, o)
    flat = [np.stack([x[row].reshape(-1, G, 64) for row in pages]) for x in (k, v)]
    assert np.array_equal(attngen.attn_paged(q, *flat, lengths), o)


def test_attn_paged_has_values_narrower_than_keys(rng, dtype, tolerance):
    lengths, pages = np.array([20], np.int32), np.array([[1, 0]], np.int32)
    q, k, v = (normal(rng, dtype, *shape) for shape in ((2, 4, 192), (2, 16, 2, 192), (2, 16, 2, 128)))
    o, lse = attngen.attn_paged(q, k, v, lengths, pages, return_lse=True)
    expected, expected_lse = paged_reference(q, k, v, lengths, pages, 2)
    assert o.shape == (2, 4, 128) and ref.relative(o, expected) < tolerance
    assert np.allclose(lse, expected_lse, atol=2e-3)
    with pytest.raises(ValueError, match="v has shape .* dimension 3 must be 128"):
        attngen.attn_paged(q, k, k, lengths, pages)


def test_attn_paged_has_sinks_and_scales(rng, dtype, tolerance):
    lengths, pages = np.array([20], np.int32), np.array([[1, 0]], np.int32)
    q, k, v = (normal(rng, dtype, *shape) for shape in ((1, 4, 64), (2, 16, 2, 64), (2, 16, 2, 64)))
    plain, lse = attngen.attn_paged(q, k, v, lengths, pages, return_lse=True)
    sink = np.array([0.5, -1, 3, -np.inf], np.float32)
    o, with_sink = attngen.attn_paged(q, k, v, lengths, pages, sink=sink, lse_sink=True, return_lse=True)
    assert np.allclose(with_sink[0], np.logaddexp(lse[0], sink), atol=1e-5)
    expected = ref.f64(plain) * np.exp(lse - with_sink)[..., None]
    assert ref.relative(o, expected) < tolerance
    half = np.full((1, 1), 0.5, np.float32)
    scaled = attngen.attn_paged(q, k, v, lengths, pages, k_descale=half, v_descale=np.full((1, 2), 2, np.float32))
    assert ref.relative(scaled, 2 * ref.f64(attngen.attn_paged(q, k, v, lengths, pages, scale=1 / 16))) < tolerance
    with pytest.raises(ValueError, match="k_descale is of"):
        attngen.attn_paged(q, k, v, lengths, pages, k_descale=np.ones((1, 3), np.float32))
    with pytest.raises(ValueError, match="kv_layout is 'DHN'"):
        attngen.attn_paged(q, k, v, lengths, pages, kv_layout="DHN")


def test_attn_merge_joins_two_halves(rng, dtype, tolerance):
    q, k, v = (normal(rng, dtype, 1, n, 2, 64) for n in (3, 10, 10))
    whole, whole_lse = attngen.attn_fwd(q, k, v, return_lse=True)
    parts = [attngen.attn_fwd(q, k[:, rows], v[:, rows], return_lse=True) for rows in (slice(0, 4), slice(4, 10))]
    values, lses = [o[0] for o, _ in parts], [np.ascontiguousarray(lse[0].T) for _, lse in parts]
    o, lse = attngen.attn_merge(np.stack(values, 1), np.stack(lses, 1))
    assert ref.relative(o, whole[0]) < 2 * tolerance and np.allclose(lse, whole_lse[0].T, atol=1e-5)
    attngen.attn_merge(values[0], lses[0], values[1], lses[1], out=values[1], out_lse=lses[1])
    assert np.array_equal(values[1], o) and np.array_equal(lses[1], lse)
    wide = attngen.attn_merge(values[0], lses[0], values[0], np.full_like(lses[0], np.inf), out_dtype="float32",
                              return_lse=False)
    assert np.array_equal(wide, values[0].astype(np.float32))
