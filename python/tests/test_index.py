# SPDX-License-Identifier: MIT
"""cu_seqlens and the like in int64: the numbers of int32, without a copy in front of the call."""

import numpy as np
import pytest

import attngen
from attngen import _arrays

CU = np.array([0, 3, 3, 70, 135], np.int64)
FAMILIES = {}


def family(function):
    FAMILIES[function.__name__] = function
    return function


def half(rng, *shape):
    return (0.3 * rng.standard_normal(shape)).astype(np.float16)


def single(rng, *shape):
    return (0.3 * rng.standard_normal(shape)).astype(np.float32)


@family
def attn_fwd(rng, cu):
    q = half(rng, 135, 2, 64)
    return lambda f: f(q, q, q, causal=True, cu_seqlens_q=cu, cu_seqlens_k=cu, max_seqlen_q=70, max_seqlen_k=70)


@family
def mla_decode(rng, cu):
    q, ckv = half(rng, 135, 2, 512), half(rng, 8, 16, 512)
    pages, kv_len = np.arange(8, dtype=np.int32), np.array([20, 5, 30, 32], np.int32)
    indptr = np.array([0, 2, 3, 5, 7], cu.dtype)
    return lambda f: f(q, None, ckv, None, kv_len, pages, page_indptr=indptr, q_indptr=cu, q_len=67, max_kv_len=32)


@family
def kda_decode(rng, cu):
    x, g, beta = half(rng, 8, 1, 64), -abs(single(rng, 8, 1, 64)), abs(single(rng, 8, 1))
    cu, state = np.array([0, 1, 1, 3, 8], cu.dtype), single(rng, 4, 1, 64, 64)
    return lambda f: (f(x, x, x, g, beta, state, cu_seqlens=cu), state)


def sides(rng):
    return half(rng, 1, 135, 1, 64), -abs(single(rng, 1, 135, 1, 64)), abs(single(rng, 1, 135, 1))


@family
def kda_prefill(rng, cu):
    x, g, beta = sides(rng)
    return lambda f: f(x, x, x, g, beta, cu_seqlens=cu, output_final_state=True)


@family
def gdn_decode(rng, cu):
    x, g, beta = half(rng, 8, 1, 64), -abs(single(rng, 8, 1)), abs(single(rng, 8, 1))
    cu, state = np.array([0, 1, 1, 3, 8], cu.dtype), single(rng, 4, 1, 64, 64)
    return lambda f: (f(x, x, x, g, beta, state, cu_seqlens=cu), state)


@family
def gdn_prefill(rng, cu):
    x, g, beta = sides(rng)
    return lambda f: f(x, x, x, g[..., 0], beta, cu_seqlens=cu, output_final_state=True)


@family
def kda_bwd(rng, cu):
    x, g, beta = sides(rng)
    return lambda f: f(x, x, x, g, beta, half(rng, *x.shape), cu_seqlens=cu)


@family
def kda_gate(rng, cu):
    x, g, _ = sides(rng)
    return lambda f: f(g, use_gate_in_kernel=False, q=x, k=x, cu_seqlens=cu)


@family
def kda_chunk_intra(rng, cu):
    x, g, beta = sides(rng)
    return lambda f: f(x, x, x, g, beta, cu_seqlens=cu)


@family
def kda_recompute_wu(rng, cu):
    x, g, beta = sides(rng)
    return lambda f: f(x, x, beta, x, g, cu_seqlens=cu)


@family
def kda_chunk_h(rng, cu):
    x, g, _ = sides(rng)
    def call(f):
        found = f(x, x, x, g, cu_seqlens=cu, output_final_state=True)
        return (found[0][:, :4], *found[1:]) if isinstance(found, tuple) else found  # chunks that are written

    return call


@family
def kda_chunk_o(rng, cu):
    x, g, _ = sides(rng)
    return lambda f: f(x, x, g, x, half(rng, 1, 6, 1, 64, 64), cu_seqlens=cu)


def numbers(answer):
    return [np.asarray(a) for a in (answer if isinstance(answer, (tuple, list)) else (answer,)) if a is not None]


@pytest.mark.parametrize("name", FAMILIES)
def test_results_are_those_of_int32(name):
    both = []
    for dtype in (np.int32, np.int64):
        rng = np.random.default_rng(7)
        both.append(numbers(FAMILIES[name](rng, CU.astype(dtype))(getattr(attngen, name))))
    assert len(both[0]) == len(both[1]) > 0
    for a, b in zip(*both):
        assert a.tobytes() == b.tobytes() and np.isfinite(a.astype(float)).any()


@pytest.mark.parametrize("name", FAMILIES)
def test_the_plan_says_so(name):
    def plan(dtype):
        call = FAMILIES[name](np.random.default_rng(7), CU.astype(dtype))
        found = call(lambda *args, **options: attngen.select(name, *args, **options))
        return found[0] if isinstance(found, tuple) else found

    narrow, wide = plan(np.int32), plan(np.int64)
    lists = 2 if name in ("attn_fwd", "mla_decode") else 1
    assert wide.workspace_bytes == -(-narrow.workspace_bytes // 256) * 256 + 256 * lists


def test_nothing_is_copied():
    for dtype in (np.int32, np.int64):
        cu = CU.astype(dtype)
        assert _arrays.Numpy.index(cu) is cu
    torch = pytest.importorskip("torch")
    from attngen import _torch

    for dtype in (torch.int32, torch.int64):
        cu = torch.tensor(CU.tolist(), dtype=dtype)
        assert _torch.index(cu) is cu


def test_one_list_may_be_wide():
    q = half(np.random.default_rng(7), 135, 2, 64)
    options = dict(causal=True, max_seqlen_q=70, max_seqlen_k=70)
    one = attngen.attn_fwd(q, q, q, cu_seqlens_q=CU, cu_seqlens_k=CU.astype(np.int32), **options)
    other = attngen.attn_fwd(q, q, q, cu_seqlens_q=CU.astype(np.int32), cu_seqlens_k=CU, **options)
    assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("bad", [[0, 1 << 40, 3, 70, 135], [-(1 << 40), 3, 3, 70, 1 << 62],
                                 [0, (1 << 32) + 3, 3, 70, 135]])
def test_what_32_bits_do_not_hold_is_the_nearest_that_they_do(bad):
    x, g, beta = sides(np.random.default_rng(7))
    outs = []
    for cu in (np.array(bad, np.int64), np.clip(bad, -(1 << 31), (1 << 31) - 1).astype(np.int32)):
        out = np.zeros_like(x)
        _, final = attngen.kda_prefill(x, x, x, g, beta, cu_seqlens=cu, max_seqlen=135, output_final_state=True,
                                       out=out)
        outs.append(out.tobytes() + final.tobytes())
    assert outs[0] == outs[1]


def test_problems_by_their_fields():
    fields = dict(batch=4, seq_len=64, num_tokens=200, num_qk_heads=1, num_v_heads=1, head_dim=64, dtype="bf16",
                  gate_dtype="fp32", beta_dtype="fp32")
    assert attngen.select("kda_gate", device="cpu", index="int64", **fields).workspace_bytes == 256
    assert attngen.select("kda_gate", device="cpu", index="int32", **fields).workspace_bytes == 0
    with pytest.raises(ValueError, match="index_dtype = 2; allowed: GEN_INDEX_INT32"):
        attngen.select("kda_gate", device="cpu", index=2, **fields)
