# SPDX-License-Identifier: MIT
"""Every family on NumPy's arrays, against the definitions in reference.py."""

import numpy as np
import pytest

import attngen
import reference as ref


def normal(rng, dtype, *shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(dtype)


def kda_inputs(rng, dtype, B, T, H, HV, K, raw=False):
    q, k = normal(rng, dtype, B, T, H, K, scale=0.1), normal(rng, dtype, B, T, H, K, scale=0.1)
    v = normal(rng, dtype, B, T, HV, K)
    g = normal(rng, np.float32, B, T, HV, K)
    beta = normal(rng, np.float32, B, T, HV)
    return (q, k, v, g, beta) if raw else (q, k, v, -np.abs(g) * 0.1, ref.sigmoid(beta).astype(np.float32))


@pytest.mark.parametrize("q_len", [1, 2])
def test_mla_decode_reads_pages(rng, dtype, tolerance, q_len):
    lengths, page_size, H = np.array([1, 70, 130], np.int32), 64, 3
    pages = rng.permutation(9).reshape(3, 3).astype(np.int32)
    q_nope, q_pe = normal(rng, dtype, 3 * q_len, H, 512), normal(rng, dtype, 3 * q_len, H, 64)
    ckv, kpe = normal(rng, dtype, 9, page_size, 512), normal(rng, dtype, 9, page_size, 64)
    o, lse = attngen.mla_decode(q_nope, q_pe, ckv, kpe, lengths, pages, scale=0.05, return_lse=True)
    expected, expected_lse = ref.mla(q_nope, q_pe, ckv, kpe, lengths, pages, q_len, 0.05)
    assert ref.relative(o, expected) < tolerance
    assert np.allclose(lse[np.isfinite(expected_lse)], expected_lse[np.isfinite(expected_lse)], atol=2e-3)
    indptr = np.array([0, 3, 6, 9], np.int32)
    listed = attngen.mla_decode(q_nope, q_pe, ckv, kpe, lengths, pages.ravel(), page_indptr=indptr, scale=0.05)
    assert np.array_equal(listed, o)


def test_mla_decode_takes_one_cache_of_576_columns(rng, dtype, tolerance):
    cache, q = normal(rng, dtype, 2, 64, 576), normal(rng, dtype, 1, 2, 576)
    lengths, pages = np.array([100], np.int32), np.array([[1, 0]], np.int32)
    latents, keys = cache[..., :512], cache[..., 512:]
    o = attngen.mla_decode(q[..., :512], q[..., 512:], latents, keys, lengths, pages)
    expected, _ = ref.mla(q[..., :512], q[..., 512:], latents, keys, lengths, pages, 1, 192 ** -0.5)
    assert ref.relative(o, expected) < tolerance


def test_mla_sparse_attends_the_rows_of_its_lists(rng, dtype, tolerance):
    cache, q, sink = normal(rng, dtype, 2, 64, 576), normal(rng, dtype, 4, 3, 576), normal(rng, np.float32, 3)
    indices = rng.integers(0, 128, (2, 2, 40)).astype(np.int32)
    indices[0, 1, ::3], indices[1, 0], indices[1, 1, 7] = -1, -1, 128
    lists = [[i for i in its if 0 <= i < 128] for its in indices.reshape(4, 40).tolist()]
    o, lse = attngen.mla_sparse(q[..., :512], q[..., 512:], cache, indices, sink=sink, scale=0.05, return_lse=True)
    rows = cache.reshape(128, 576)
    expected, expected_lse = ref.mla_lists(q[..., :512], q[..., 512:], rows, lists, 0.05, sink)
    assert ref.relative(o, expected) < tolerance and (np.asarray(o[2], np.float32) == 0).all()
    assert np.isneginf(lse[2]).all() and np.allclose(lse[[0, 1, 3]], expected_lse[[0, 1, 3]], atol=2e-3)
    short = attngen.mla_sparse(q[..., :512], q[..., 512:], cache, indices, scale=0.05,
                               topk_length=np.array([[5, 40], [1, -1]], np.int32))
    lists[0], lists[3] = lists[0][:5], []
    expected, _ = ref.mla_lists(q[..., :512], q[..., 512:], rows, lists, 0.05)
    assert ref.relative(short, expected) < tolerance


def test_mla_sparse_reads_rows_of_656_bytes(rng):
    import ml_dtypes

    elements = normal(rng, ml_dtypes.float8_e4m3fn, 64, 512)
    scales = (2.0 ** rng.integers(-2, 2, (64, 4))).astype(np.float32)
    keys = normal(rng, ml_dtypes.bfloat16, 64, 64)
    rows = np.concatenate([elements.view(np.uint8), scales.view(np.uint8), keys.view(np.uint8)], 1)
    values = np.asarray(elements, np.float32) * scales.repeat(128, 1)
    q = normal(rng, ml_dtypes.bfloat16, 2, 8, 576)
    lists = [[1, 5, 5, 63], [0, 2, 9, 3]]
    o = attngen.mla_sparse(q[..., :512], q[..., 512:], rows.reshape(4, 16, 656), np.array(lists, np.int32)[:, None])
    expected, _ = ref.mla_lists(q[..., :512], q[..., 512:], np.concatenate([values, np.asarray(keys, np.float32)], 1),
                                lists, 192 ** -0.5)
    assert ref.relative(o, expected) < 0.01
    with pytest.raises(ValueError, match="kv has rows of 640; allowed: 656 bytes"):
        attngen.mla_sparse(q[..., :512], q[..., 512:], rows[:, :640].reshape(4, 16, 640),
                           np.array(lists, np.int32)[:, None])


@pytest.mark.parametrize("v_first", [False, True])
def test_la_decode_updates_states_in_place(rng, dtype, tolerance, v_first):
    q, k, v = normal(rng, dtype, 3, 2, 64), normal(rng, dtype, 3, 2, 64), normal(rng, dtype, 3, 4, 64)
    pool, decay = normal(rng, np.float32, 5, 4, 64, 64), np.abs(normal(rng, np.float32, 4))
    slots = np.array([4, -1, 0], np.int32)
    before = pool.copy()
    o = attngen.la_decode(q, k, v, pool, decay, slots=slots, state_v_first=v_first, zero_padding=True)
    kv = (lambda s: s.swapaxes(-1, -2)) if v_first else (lambda s: s)
    rows = [0, 2]
    expected, states = ref.lightning(q[rows], k[rows], v[rows], kv(before)[slots[rows]], decay)
    assert ref.relative(o[rows], expected) < tolerance
    assert ref.relative(kv(pool)[slots[rows]], states) < 1e-6
    assert not o[1].any() and np.array_equal(pool[1:4], before[1:4])


@pytest.mark.parametrize("kept", [np.float32, np.float16])
def test_la_decode_has_states_in_pools_as_engines_keep_them(rng, dtype, tolerance, kept):
    q, k, v = normal(rng, dtype, 4, 2, 64), normal(rng, dtype, 4, 2, 64), normal(rng, dtype, 4, 2, 64)
    memory, decay = normal(rng, np.float32, 7, 3, 64, 64).astype(kept), np.abs(normal(rng, np.float32, 2))
    pool, before = memory[:, :2], memory.copy()  # a third of each slot is another layer's
    slots, slots_out = np.array([5, 0, 2, 3], np.int32), np.array([1, 6, 2, -1], np.int32)
    o = attngen.la_decode(q, k, v, pool, decay, slots=slots, slots_out=slots_out, null_slot=0, zero_padding=True)
    rows = [0, 2, 3]
    expected, last = ref.lightning(q[rows], k[rows], v[rows], before[slots[rows], :2].astype(np.float32), decay)
    assert ref.relative(o[rows], expected) < tolerance and not o[1].any()
    assert ref.relative(pool[[1, 2]], last[:2]) < (1e-6 if kept == np.float32 else 2 ** -11)
    untouched = [0, 3, 4, 5, 6]
    assert np.array_equal(memory[untouched], before[untouched]) and np.array_equal(memory[:, 2], before[:, 2])


@pytest.mark.parametrize("form", ["given", "softplus", "bound"])
def test_kda_decode_has_the_values_of_its_definition(rng, dtype, tolerance, form):
    B, T, H, HV, K = 3, 2, 2, 4, 64
    q, k, v, g, beta = kda_inputs(rng, dtype, B, T, H, HV, K, raw=True)
    A_log, dt_bias = normal(rng, np.float32, HV, scale=0.3), normal(rng, np.float32, HV, K)
    state = normal(rng, np.float32, B, HV, K, K)
    before = state.copy()
    bound = -5.0 if form == "bound" else None
    if form == "given":
        g = -np.abs(g) * 0.1
        activated, options = g, {}
    else:
        activated = ref.gate(g, A_log, dt_bias, bound)
        options = {"use_gate_in_kernel": True, "A_log": A_log, "dt_bias": dt_bias, "lower_bound": bound}
    o = attngen.kda_decode(q, k, v, g, beta, state, use_qk_l2norm_in_kernel=True, use_beta_sigmoid_in_kernel=True,
                           allow_neg_eigval=True, **options)
    expected, last = ref.kda(ref.l2(q), ref.l2(k), v, activated, 2 * ref.sigmoid(beta), before)
    assert ref.relative(o, expected) < tolerance and ref.relative(state, last) < 1e-5


def test_kda_decode_takes_one_token_without_its_dimension_and_a_table_of_slots(rng, dtype, tolerance):
    q, k, v, g, beta = (x[:, 0] for x in kda_inputs(rng, dtype, 2, 1, 2, 2, 64))
    pool = normal(rng, np.float32, 6, 2, 64, 64)
    before = pool.copy()
    slots, accepted = np.array([[5, 1], [2, 3]], np.int32), np.array([2, 1], np.int32)
    o = attngen.kda_decode(q, k, v, g, beta, pool, slots=slots, accepted=accepted)
    expected, last = ref.kda(*(x[:, None] for x in (q, k, v, g, beta)), before[[1, 2]])
    assert ref.relative(o, expected[:, 0]) < tolerance and ref.relative(pool[[1, 2]], last) < 1e-5


@pytest.mark.parametrize("kept", [np.float32, np.float16])
def test_kda_decode_has_states_in_pools_as_engines_keep_them(rng, dtype, tolerance, kept):
    q, k, v, g, beta = (x[:, 0] for x in kda_inputs(rng, dtype, 4, 1, 2, 2, 64))
    memory = normal(rng, np.float32, 7, 3, 64, 64).astype(kept)
    pool, before = memory[:, :2], memory.copy()  # a third of each slot is another layer's
    slots, slots_out = np.array([5, 0, 2, 3], np.int32), np.array([1, 6, 2, -1], np.int32)
    o = attngen.kda_decode(q, k, v, g, beta, pool, slots=slots, slots_out=slots_out, null_slot=0, zero_padding=True)
    rows = [0, 2, 3]
    expected, last = ref.kda(*(x[rows, None] for x in (q, k, v, g, beta)), before[slots[rows], :2].astype(np.float32))
    assert ref.relative(o[rows], expected[:, 0]) < tolerance and not o[1].any()
    assert ref.relative(pool[[1, 2]], last[:2]) < (1e-5 if kept == np.float32 else 2 ** -11)
    untouched = [0, 3, 4, 5, 6]
    assert np.array_equal(memory[untouched], before[untouched]) and np.array_equal(memory[:, 2], before[:, 2])


@pytest.mark.parametrize("kept", [np.float32, np.float16])
def test_kda_decode_replays_records_of_a_ring(rng, dtype, tolerance, kept):
    rows, H, HV, K, R = 3, 1, 2, 128, 5
    pool = normal(rng, np.float32, 4, HV, K, K, scale=0.3).astype(kept)
    states, slots = pool[[2, 0, 3]].astype(np.float32), np.array([2, 0, 3], np.int32)
    ring_k, ring_g = np.zeros((4, H, R, K), dtype), np.zeros((4, HV, R, K), dtype)
    ring_u = np.zeros((4, HV, R, K), np.float16)
    fill, base = np.array([0, 7, 0, 0], np.int32), np.array([3, 0, 0, 4], np.int32)
    ring = dict(ring_k=ring_k, ring_g=ring_g, ring_u=ring_u, ring_fill=fill, ring_base=base, ring_len=4)
    for step in range(7):
        q, k, v, g, beta = (x[:, 0] for x in kda_inputs(rng, dtype, rows, 1, H, HV, K))
        flush, before, g = np.array([step == 2, 0, 0], np.uint8), pool.copy(), g.astype(dtype)
        o = attngen.kda_decode(q, k, v, g, beta, pool, slots=slots, state_v_first=True, flush=flush, **ring)
        expected, states = ref.kda(*(x[:, None] for x in (q, k, v, g, beta)), states.swapaxes(-1, -2))
        states = states.swapaxes(-1, -2)
        assert ref.relative(o, expected[:, 0]) < tolerance + 1e-3
        folded = [n for n in range(rows) if fill[slots[n]] == 3 or flush[n]]
        assert all(np.array_equal(pool[s], before[s]) for n, s in enumerate(slots) if n not in folded)
        for n in folded:
            assert ref.relative(pool[slots[n]], states[n]) < 1e-3
        attngen.kda_ring_advance(fill, base, ring_len=4, ring_size=R, slots=slots, flush=flush)
    assert fill.tolist() == [3, 7, 0, 3] and base.tolist() == [3, 0, 0, 4]


def test_gdn_decode_replays_records_of_a_ring(rng, dtype, tolerance):
    rows, HV, K, R = 2, 2, 128, 4
    pool = normal(rng, np.float32, 3, HV, K, K, scale=0.3)
    states, slots = pool[[2, 0]].swapaxes(-1, -2).copy(), np.array([2, 0], np.int32)
    ring_k, ring_g = np.zeros((3, 1, R, K), dtype), np.zeros((3, HV, R), np.float32)
    ring_u, fill, base = np.zeros((3, HV, R, K), np.float32), np.array([0, 7, 0], np.int32), np.array([3, 0, 0], np.int32)
    ring = dict(ring_k=ring_k, ring_g=ring_g, ring_u=ring_u, ring_fill=fill, ring_base=base, ring_len=4)
    for step in range(5):
        q, k, v, g, beta = (x[:, 0] for x in kda_inputs(rng, dtype, rows, 1, 1, HV, K))
        g, before = g[..., 0].astype(np.float32), pool.copy()
        o = attngen.gdn_decode(q, k, v, g, beta, pool, slots=slots, state_v_first=True, **ring)
        channels = np.broadcast_to(g[..., None], g.shape + (K,))
        expected, states = ref.kda(*(x[:, None] for x in (q, k, v, channels, beta)), states)
        assert ref.relative(o, expected[:, 0]) < tolerance + 1e-3
        if fill[0] != 3:
            assert np.array_equal(pool, before)
        else:
            assert ref.relative(pool[slots].swapaxes(-1, -2), states) < 1e-3
        attngen.kda_ring_advance(fill, base, ring_len=4, ring_size=R, slots=slots)
    assert fill.tolist() == [1, 7, 1]


def test_kda_decode_verifies_tokens_into_a_ring(rng, dtype, tolerance):
    rows, T, HV, K, R = 3, 3, 2, 128, 8
    pool = normal(rng, np.float32, 4, HV, K, K, scale=0.3)
    states, slots = pool[[2, 0, 3]].swapaxes(-1, -2).copy(), np.array([2, 0, 3], np.int32)
    ring_k, ring_g = np.zeros((4, 1, R, K), dtype), np.zeros((4, HV, R, K), dtype)
    ring_u = np.zeros((4, HV, R, K), np.float32)
    fill, base = np.zeros(4, np.int32), np.array([3, 0, 0, 7], np.int32)
    ring = dict(ring_k=ring_k, ring_g=ring_g, ring_u=ring_u, ring_fill=fill, ring_base=base, ring_len=R)
    for step in range(6):
        q, k, v, g, beta = kda_inputs(rng, dtype, rows, T, 1, HV, K)
        g, accepted = g.astype(dtype), np.array([step % 4, 3, 1], np.int32)
        o = attngen.kda_decode(q, k, v, g, beta, pool, slots=slots, state_v_first=True, write="records", **ring)
        expected, _ = ref.kda(q, k, v, g, beta, states)
        assert ref.relative(o, expected) < tolerance + 1e-3
        for n, a in enumerate(accepted):
            if a:
                states[n] = ref.kda(*(x[n:n + 1, :a] for x in (q, k, v, g, beta)), states[n:n + 1])[1][0]
        attngen.kda_ring_accept(fill, base, num_tokens=T, ring_size=R, slots=slots, accepted=accepted)
    assert (fill <= R - T).all() and base[3] != 7


def test_kda_decode_keeps_the_state_behind_each_token(rng, dtype):
    inputs = kda_inputs(rng, dtype, 1, 3, 1, 1, 64)
    pool = normal(rng, np.float32, 4, 1, 64, 64)
    first = pool[2:3].copy()
    attngen.kda_decode(*inputs, pool, slots=np.array([[2, 0, 3]], np.int32), write="each")
    for t, slot in enumerate((2, 0, 3)):
        _, state = ref.kda(*(x[:, :t + 1] for x in inputs), first)
        assert ref.relative(pool[slot], state[0]) < 1e-5


@pytest.mark.parametrize("v_first", [False, True])
@pytest.mark.parametrize("K", [64, 128])
def test_kda_prefill_has_the_values_of_its_definition(rng, dtype, tolerance, K, v_first):
    q, k, v, g, beta = kda_inputs(rng, dtype, 2, 100, 2, 4, K)
    initial = normal(rng, np.float32, 2, 4, K, K)
    o, final = attngen.kda_prefill(q, k, v, g, beta, initial_state=initial, output_final_state=True,
                                   state_v_first=v_first)
    kv = (lambda s: s.swapaxes(-1, -2)) if v_first else (lambda s: s)
    expected, last = ref.kda(q, k, v, g, beta, kv(initial))
    assert ref.relative(o, expected) < tolerance and ref.relative(kv(final), last) < 1e-5


@pytest.mark.parametrize("bound", [None, -5.0])
def test_kda_prefill_of_packed_sequences_with_all_in_the_kernel(rng, dtype, tolerance, bound):
    cu = np.array([0, 3, 3, 70, 135], np.int64)
    q, k, v, g, beta = kda_inputs(rng, dtype, 1, 135, 2, 2, 64, raw=True)
    A_log, dt_bias = normal(rng, np.float32, 2, scale=0.3), normal(rng, np.float32, 2 * 64)
    o, final = attngen.kda_prefill(q, k, v, g, beta, output_final_state=True, cu_seqlens=cu, A_log=A_log,
                                   dt_bias=dt_bias, lower_bound=bound, use_gate_in_kernel=True,
                                   use_qk_l2norm_in_kernel=True, use_beta_sigmoid_in_kernel=True)
    expected, last = ref.kda_packed(ref.l2(q), ref.l2(k), v, ref.gate(g, A_log, dt_bias, bound), ref.sigmoid(beta), cu)
    assert ref.relative(o, expected) < tolerance and ref.relative(final, last) < 1e-5


def test_kda_prefill_takes_views_of_a_fused_projection(rng, dtype, tolerance):
    _, _, v, g, beta = kda_inputs(rng, dtype, 2, 9, 2, 2, 64)
    fused = normal(rng, dtype, 2, 9, 3, 2, 64, scale=0.1)
    q, k = fused[:, :, 0], fused[:, :, 1]
    o, _ = attngen.kda_prefill(q, k, v, g, beta)
    assert ref.relative(o, ref.kda(q, k, v, g, beta)[0]) < tolerance


@pytest.mark.parametrize("kept", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", ["kda_prefill", "gdn_prefill"])
def test_prefill_has_states_in_pools_and_checkpoints(rng, dtype, tolerance, name, kept):
    call, K, HV = getattr(attngen, name), 64, 2
    cu = np.array([0, 130, 130, 200], np.int32)
    if name == "kda_prefill":
        q, k, v, g, beta = kda_inputs(rng, dtype, 1, 200, 1, HV, K)
    else:
        q, k, v, g, beta = gdn_inputs(rng, dtype, 1, 200, 1, HV, K)
        q, k, g, beta = q, k, -np.abs(g) * 0.1, ref.sigmoid(beta).astype(np.float32)
    import ml_dtypes

    kept = np.dtype(ml_dtypes.bfloat16 if kept == "bfloat16" else kept)
    room = rng.standard_normal((9, HV * K * K + 64)).astype(kept)  # slots that are apart
    pool = np.lib.stride_tricks.as_strided(room, (9, HV, K, K), (room.strides[0], K * K * kept.itemsize,
                                                                 K * kept.itemsize, kept.itemsize))
    before = pool.astype(np.float32)
    options = {"slots_in": np.array([3, 2, 3], np.int32), "has_initial": np.array([True, True, False]),
               "slots_out": np.array([1, 0, -1], np.int32), "null_slot": 2, "final_state": pool, "cu_seqlens": cu}
    o, final = call(q, k, v, g, beta, initial_state=pool, output_final_state=True, ckpt_pool=pool,
                    ckpt_begin=np.array([0, 2, 2, 4], np.int32), ckpt_token=np.array([64, 128, 64, 128], np.int32),
                    ckpt_slot=np.array([5, 2, 6, 7], np.int32), **options)
    assert final is pool
    starts = [before[3], np.zeros_like(before[3]), np.zeros_like(before[3])]
    small = {2: 1e-5 if kept == np.float32 else 5e-3}[2]
    for n, start in enumerate(starts):
        a = slice(cu[n], cu[n + 1])
        if a.stop > a.start:
            expected, _ = call(q[:, a], k[:, a], v[:, a], g[:, a], beta[:, a], initial_state=start[None])
            assert ref.relative(o[:, a], expected) < tolerance

    def behind(first, count, start):
        a = slice(first, first + count)
        return call(q[:, a], k[:, a], v[:, a], g[:, a], beta[:, a], initial_state=start[None],
                    output_final_state=True)[1][0]

    assert ref.relative(pool[5], behind(0, 64, starts[0])) < small
    assert ref.relative(pool[1], behind(0, 130, starts[0])) < small
    assert ref.relative(pool[6], behind(130, 64, starts[2])) < small
    assert not pool[0].any()  # a sequence without tokens and without an initial state
    for slot in (2, 3, 4, 7, 8):  # the null one, read ones, and a checkpoint beyond the sequence
        assert np.array_equal(pool[slot].astype(np.float32), before[slot])
    others = np.zeros((4, HV, K, K), kept)
    call(q, k, v, g, beta, initial_state=pool, ckpt_pool=others, ckpt_every=1,
         ckpt_slot=np.array([[0, 1], [2, 2], [3, -1]], np.int32), **(options | {"final_state": None, "slots_out": None}))
    assert ref.relative(others[0], pool[5]) < small and ref.relative(others[3], pool[6]) < small and not others[2].any()


def test_prefill_says_what_of_its_pools_is_wrong(rng, dtype):
    q, k, v, g, beta = kda_inputs(rng, dtype, 2, 9, 1, 1, 64)
    pool = np.zeros((4, 1, 64, 64), np.float32)
    for options, text in (({"slots_in": np.zeros(3, np.int32)}, "slots_in has 3 entries; 2 are wanted"),
                          ({"slots_in": np.zeros(2, np.int32), "initial_state": None}, "slots_in without initial_state"),
                          ({"has_initial": np.zeros(2, np.int32)}, "32 bits an entry"),
                          ({"ckpt_every": 1, "ckpt_slot": np.zeros((2, 1), np.int32)}, "without ckpt_pool"),
                          ({"ckpt_pool": pool}, "ckpt_slot is NULL")):
        with pytest.raises(ValueError, match=text):
            attngen.kda_prefill(q, k, v, g, beta, **({"initial_state": pool, "slots_in": np.zeros(2, np.int32)} | options))


def gdn_inputs(rng, dtype, B, T, H, HV, K):
    """As kda_inputs, raw, with a gate a head."""
    q, k, v, g, beta = kda_inputs(rng, dtype, B, T, H, HV, K, raw=True)
    return q, k, v, np.ascontiguousarray(g[..., 0]), beta


def channels(g, K):
    """The gates of all channels, for the reference of KDA."""
    return np.repeat(ref.f64(g)[..., None], K, -1)


@pytest.mark.parametrize("raw", [False, True])
def test_gdn_decode_has_the_values_of_its_definition(rng, dtype, tolerance, raw):
    B, T, H, HV, K = 3, 2, 2, 6, 64
    q, k, v, g, beta = gdn_inputs(rng, dtype, B, T, H, HV, K)
    A_log, dt_bias = normal(rng, np.float32, HV, scale=0.3), normal(rng, np.float32, HV)
    state = normal(rng, np.float32, B, HV, K, K)
    before = state.copy()
    if raw:
        activated = ref.gate(g[..., None], A_log, dt_bias[:, None])[..., 0]
        options = {"use_gate_in_kernel": True, "A_log": A_log, "dt_bias": dt_bias}
    else:
        g = -np.abs(g) * 0.1
        activated, options = g, {}
    o = attngen.gdn_decode(q, k, v, g, beta, state, use_qk_l2norm_in_kernel=True, use_beta_sigmoid_in_kernel=True,
                           **options)
    expected, last = ref.kda(ref.l2(q), ref.l2(k), v, channels(activated, K), ref.sigmoid(beta), before)
    assert ref.relative(o, expected) < tolerance and ref.relative(state, last) < 1e-5
    with pytest.raises(ValueError, match="g is of|g has"):
        attngen.gdn_decode(q, k, v, channels(g, K).astype(dtype), beta, state)


@pytest.mark.parametrize("v_first", [False, True])
@pytest.mark.parametrize("cu", [None, [0, 3, 3, 70, 135]])
def test_gdn_prefill_has_the_values_of_its_definition(rng, dtype, tolerance, v_first, cu):
    B, T, H, HV, K = (2, 135, 2, 6, 64) if cu is None else (1, 135, 2, 6, 64)
    q, k, v, g, beta = gdn_inputs(rng, dtype, B, T, H, HV, K)
    A_log, dt_bias = normal(rng, np.float32, HV, scale=0.3), normal(rng, np.float32, HV)
    initial = normal(rng, np.float32, 2 if cu is None else 4, HV, K, K)
    o, final = attngen.gdn_prefill(q, k, v, g, beta, initial_state=initial, output_final_state=True,
                                   state_v_first=v_first, A_log=A_log, dt_bias=dt_bias, use_gate_in_kernel=True,
                                   use_qk_l2norm_in_kernel=True, use_beta_sigmoid_in_kernel=True,
                                   cu_seqlens=None if cu is None else np.array(cu, np.int32))
    kv = (lambda s: s.swapaxes(-1, -2)) if v_first else (lambda s: s)
    gate = channels(ref.gate(g[..., None], A_log, dt_bias[:, None])[..., 0], K)
    args = ref.l2(q), ref.l2(k), v, gate, ref.sigmoid(beta)
    expected, last = ref.kda(*args, kv(initial)) if cu is None else ref.kda_packed(*args, cu, kv(initial))
    assert ref.relative(o, expected) < tolerance and ref.relative(kv(final), last) < 1e-5


@pytest.mark.parametrize("cu", [None, [0, 65, 70, 200]])
def test_the_five_stages_make_the_whole_prefill(rng, dtype, tolerance, cu):
    B, T, H, HV, K = (2, 100, 2, 4, 64) if cu is None else (1, 200, 2, 4, 64)
    q, k, v, g, beta = kda_inputs(rng, dtype, B, T, H, HV, K, raw=True)
    beta = ref.sigmoid(beta).astype(np.float32)
    A_log, dt_bias = normal(rng, np.float32, HV, scale=0.3), normal(rng, np.float32, HV, K)
    cu = None if cu is None else np.array(cu, np.int32)
    N = B if cu is None else len(cu) - 1
    initial = normal(rng, np.float32, N, HV, K, K)
    gk, q_norm, k_norm, _, _ = attngen.kda_gate(g, A_log=A_log, dt_bias=dt_bias, lower_bound=-5.0, q=q, k=k,
                                                cu_seqlens=cu)
    activated = ref.gate(g, A_log, dt_bias, -5.0)
    assert ref.relative(gk, ref.chunk_sums(activated, cu)) < 1e-5
    assert ref.relative(q_norm, ref.l2(q)) < tolerance
    w, u, qg, kg, a_qk, a_kk = attngen.kda_chunk_intra(q_norm, k_norm, v, gk, beta, cu_seqlens=cu, safe_gate=True)
    assert qg is None
    again = attngen.kda_recompute_wu(k_norm, v, beta, a_kk, gk, q=q_norm, cu_seqlens=cu)
    for one, two in zip((w, u, kg), (again[0], again[1], again[3])):
        assert ref.relative(one, two) < 3 * tolerance
    h, v_new, final = attngen.kda_chunk_h(kg, w, u, gk, initial_state=initial, output_final_state=True, cu_seqlens=cu)
    o = attngen.kda_chunk_o(q_norm, v_new, gk, a_qk, h, cu_seqlens=cu)
    bounds = [0, T] if cu is None else cu
    expected, last = (ref.kda(ref.l2(q), ref.l2(k), v, activated, beta, initial) if cu is None else
                      ref.kda_packed(ref.l2(q), ref.l2(k), v, activated, beta, bounds, initial))
    assert ref.relative(o, expected) < 5 * tolerance and ref.relative(final, last) < 5 * tolerance


def test_empty_problems_have_empty_results(rng, dtype):
    q, k, v, g, beta = kda_inputs(rng, dtype, 1, 0, 2, 2, 64)
    initial = normal(rng, np.float32, 1, 2, 64, 64)
    o, final = attngen.kda_prefill(q, k, v, g, beta, initial_state=initial, output_final_state=True)
    assert o.shape == (1, 0, 2, 64) and np.array_equal(final, initial)
    none = np.zeros((0, 2, 64), dtype)
    pool = np.ones((1, 2, 64, 64), np.float32)
    assert attngen.la_decode(none, none, none, pool, np.zeros(2, np.float32)).shape == (0, 2, 64)
    assert (pool == 1).all()
