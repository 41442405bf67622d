# SPDX-License-Identifier: MIT
"""KDA's backward pass on NumPy's arrays: against differences of the definition in reference.py, and stage by stage."""

import numpy as np
import pytest

import attngen
import reference as ref
from attngen import _arrays, _ffi

NAMES = ("q", "k", "v", "g", "beta", "A_log", "dt_bias", "initial_state")


def normal(rng, dtype, *shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(dtype)


class Case:
    """Inputs of one problem, their options, and the definition's value of <o, d_o> + <final state, d_final_state>."""

    def __init__(self, rng, dtype, gate="bound", beta="sigmoid", norm=True, cu=None, B=2, T=66, H=2, HV=4, K=64):
        if cu is not None:
            B, T = 1, cu[-1]
        self.gate, self.beta_form, self.norm = gate, beta, norm
        self.cu = None if cu is None else np.array(cu, np.int32)
        N = B if cu is None else len(cu) - 1
        size = 1.0 if norm else 0.1
        x = {"q": normal(rng, dtype, B, T, H, K, scale=size), "k": normal(rng, dtype, B, T, H, K, scale=size),
             "v": normal(rng, dtype, B, T, HV, K), "g": normal(rng, np.float32, B, T, HV, K),
             "beta": normal(rng, np.float32, B, T, HV), "A_log": normal(rng, np.float32, HV, scale=0.3),
             "dt_bias": normal(rng, np.float32, HV, K), "initial_state": normal(rng, np.float32, N, HV, K, K)}
        if gate == "given":
            x["g"], x["A_log"], x["dt_bias"] = -np.abs(x["g"]) * 0.1, None, None
        if beta == "given":
            x["beta"] = ref.sigmoid(x["beta"]).astype(np.float32)
        self.x = x
        self.d_o, self.d_final = normal(rng, dtype, B, T, HV, K), normal(rng, np.float32, N, HV, K, K)
        self.options = {"use_qk_l2norm_in_kernel": norm, "use_gate_in_kernel": gate != "given", "cu_seqlens": self.cu,
                        "lower_bound": -5.0 if gate == "bound" else None, "A_log": x["A_log"], "dt_bias": x["dt_bias"],
                        "use_beta_sigmoid_in_kernel": beta != "given", "allow_neg_eigval": beta == "twice"}

    def inputs(self):
        return [self.x[name] for name in NAMES[:5]]

    def value(self, x):
        q, k = (ref.l2(x["q"]), ref.l2(x["k"])) if self.norm else (x["q"], x["k"])
        g = x["g"]
        if self.gate != "given":
            g = ref.gate(g, x["A_log"], x["dt_bias"], self.options["lower_bound"])
        beta = x["beta"] if self.beta_form == "given" else ref.sigmoid(ref.f64(x["beta"]))
        beta = 2 * beta if self.beta_form == "twice" else beta
        run = (q, k, x["v"], g, beta)
        o, last = (ref.kda(*run, x["initial_state"]) if self.cu is None else
                   ref.kda_packed(*run, self.cu, x["initial_state"]))
        return (o * ref.f64(self.d_o)).sum() + (last * ref.f64(self.d_final)).sum()

    def check(self, rng, gradients, tolerance):
        """Each gradient along some directions, against differences of the value."""
        for name, found in zip(NAMES, gradients):
            if self.x[name] is None:
                assert found is None
                continue
            assert found.shape == self.x[name].shape and found.dtype == self.x[name].dtype
            for _ in range(2):
                direction, step = rng.standard_normal(found.shape), 1e-4
                ends = [self.value({**self.x, name: ref.f64(self.x[name]) + sign * step * direction})
                        for sign in (1, -1)]
                along, expected = (ref.f64(found) * direction).sum(), (ends[0] - ends[1]) / (2 * step)
                assert abs(along - expected) < tolerance * np.linalg.norm(ref.f64(found)), name


@pytest.mark.parametrize("gate, beta, norm", [("bound", "sigmoid", True), ("softplus", "twice", True),
                                              ("given", "given", False), ("bound", "given", False)])
def test_gradients_are_those_of_the_definition(rng, dtype, tolerance, gate, beta, norm):
    case = Case(rng, dtype, gate, beta, norm)
    found = attngen.kda_bwd(*case.inputs(), case.d_o, d_final_state=case.d_final,
                            initial_state=case.x["initial_state"], **case.options)
    case.check(rng, found, 3 * tolerance)


@pytest.mark.parametrize("H, HV", [(1, 8), (2, 2), (2, 4)])
def test_gradients_of_packed_sequences_of_groups(rng, dtype, tolerance, H, HV):
    case = Case(rng, dtype, cu=[0, 1, 1, 64, 129], H=H, HV=HV)
    found = attngen.kda_bwd(*case.inputs(), case.d_o, d_final_state=case.d_final,
                            initial_state=case.x["initial_state"], **case.options)
    case.check(rng, found, 3 * tolerance)
    empty = 1  # a sequence without tokens hands its state's gradient on
    assert np.array_equal(found[7][empty], case.d_final[empty])


def test_both_layouts_of_states_and_states_that_are_kept(rng, dtype):
    case = Case(rng, dtype, T=130)
    initial, d_final = case.x["initial_state"], case.d_final
    one = attngen.kda_bwd(*case.inputs(), case.d_o, d_final_state=d_final, initial_state=initial, **case.options)
    states = np.zeros((2 * 3, 4, 64, 64), dtype)
    attngen.kda_prefill(*case.inputs(), initial_state=initial, states=states, **case.options)
    assert ref.relative(states[0], initial[0]) < 0.01 and ref.f64(states).any((1, 2, 3)).all()
    kept = attngen.kda_bwd(*case.inputs(), case.d_o, d_final_state=d_final, initial_state=initial, states=states,
                           **case.options)
    turned = attngen.kda_bwd(*case.inputs(), case.d_o, d_final_state=d_final.swapaxes(-1, -2).copy(),
                             initial_state=initial.swapaxes(-1, -2).copy(), state_v_first=True, **case.options)
    for a, b, c in zip(one, kept, turned):
        assert np.array_equal(a, b)
        if a.shape == initial.shape:
            c = c.swapaxes(-1, -2)
        assert ref.relative(c, a) < 1e-6


def test_what_is_absent(rng, dtype):
    case = Case(rng, dtype, T=9)
    zeros = np.zeros_like(case.d_final)
    full = attngen.kda_bwd(*case.inputs(), case.d_o, d_final_state=zeros, initial_state=zeros, **case.options)
    bare = attngen.kda_bwd(*case.inputs(), case.d_o, output_d_initial_state=True, **case.options)
    assert all(np.array_equal(a, b) for a, b in zip(full, bare))
    assert attngen.kda_bwd(*case.inputs(), case.d_o, **case.options)[7] is None
    flat = {**case.options, "dt_bias": case.options["dt_bias"].reshape(-1)}
    found = attngen.kda_bwd(*case.inputs(), case.d_o, **flat)[6]
    assert found.shape == (4 * 64,) and np.array_equal(found, full[6].reshape(-1))


def test_no_tokens(rng, dtype):
    case = Case(rng, dtype, T=0)
    found = attngen.kda_bwd(*case.inputs(), case.d_o, d_final_state=case.d_final,
                            initial_state=case.x["initial_state"], **case.options)
    assert all(x.size == 0 for x in found[:5])
    assert not found[5].any() and not found[6].any() and np.array_equal(found[7], case.d_final)


def test_rows_that_no_sequence_has_are_zeros(rng, dtype):
    case = Case(rng, dtype, cu=[0, 5, 9])
    longer = [np.concatenate([x, np.full_like(x[:, :3], np.nan)], 1) for x in (*case.inputs(), case.d_o)]
    found = attngen.kda_bwd(*longer, max_seqlen=12, **case.options)
    same = attngen.kda_bwd(*case.inputs(), case.d_o, **case.options)
    for a, b in zip(found[:5], same[:5]):
        assert np.array_equal(a[:, :9], b) and not ref.f64(a[:, 9:]).any()
    assert np.array_equal(found[5], same[5]) and np.array_equal(found[6], same[6])


@pytest.mark.parametrize("cu", [None, [0, 65, 70, 200]])
def test_the_stages_make_the_whole_backward_pass(rng, dtype, tolerance, cu):
    case = Case(rng, dtype, cu=cu, T=100)
    x, options, initial = case.x, case.options, case.x["initial_state"]
    whole = attngen.kda_bwd(*case.inputs(), case.d_o, d_final_state=case.d_final, initial_state=initial, **options)
    packed = {"cu_seqlens": case.cu}
    gate = {"A_log": x["A_log"], "dt_bias": x["dt_bias"], "lower_bound": -5.0}
    gk, q, k, q_rstd, k_rstd = attngen.kda_gate(x["g"], q=x["q"], k=x["k"], **gate, **packed)
    beta = ref.sigmoid(x["beta"]).astype(np.float32)
    w, u, qg, kg, a_qk, a_kk = attngen.kda_chunk_intra(q, k, x["v"], gk, beta, safe_gate=True, with_qg=True, **packed)
    h, v_new, _ = attngen.kda_chunk_h(kg, w, u, gk, initial_state=initial, **packed)
    d_a_qk, d_v = attngen.kda_bwd_dav(v_new, case.d_o, a_qk, **packed)
    d_h, d_v_new, d_initial = attngen.kda_bwd_dhu(qg, kg, w, gk, case.d_o, d_v, d_final_state=case.d_final,
                                                  output_d_initial_state=True, **packed)
    d_q, d_k, d_v, d_beta, d_g, d_a_kk = attngen.kda_bwd_wy(q, k, x["v"], v_new, gk, beta, a_kk, h, case.d_o, d_h,
                                                            d_v_new, **packed)
    assert d_h.shape == h.shape and np.allclose(np.triu(d_a_kk[0, :64, 0]), 0)
    d_q, d_k, d_beta, d_g = attngen.kda_bwd_intra(q, k, gk, beta, d_a_qk, d_a_kk, d_q, d_k, d_beta, d_g, safe_gate=True,
                                                  **packed)
    d_g, d_A_log, d_dt_bias = attngen.kda_gate_bwd(x["g"], d_g, **gate, **packed)
    normed = {"use_qk_l2norm_in_kernel": True, "use_beta_sigmoid_in_kernel": True}
    ends = attngen.kda_qk_bwd(x["q"], x["k"], x["beta"], d_q, d_k, d_beta, **normed, **packed)
    again = attngen.kda_qk_bwd(q, k, x["beta"], d_q, d_k, d_beta, q_rstd=q_rstd, k_rstd=k_rstd, **normed, **packed)
    found = (ends[0], ends[1], d_v, d_g, ends[2], d_A_log, d_dt_bias, d_initial)
    for name, a, b in zip(NAMES, found, whole):
        assert a.dtype == b.dtype and ref.relative(a, b) < 6 * tolerance, name
    for a, b in zip(ends, again):
        assert ref.relative(a, b) < 3 * tolerance


@pytest.mark.parametrize("change, words", [
    ({"states": (1, 4, 64, 64)}, "states has 1 chunks; 4 are wanted"),
    ({"d_final_state": (3, 4, 64, 64)}, "d_final_state has 3 states; 2 are wanted, one a sequence"),
    ({"d_final_state": (2, 4, 64, 32)}, "a state is of 64 x 32; 64 x 64 is wanted"),
    ({"d_o": (2, 66, 2, 64)}, "d_o has shape [2, 66, 2, 64]; its dimension 2 must be 4, as v has"),
])
def test_errors_name_what_was_found_and_what_is_allowed(rng, change, words):
    case = Case(rng, np.float16)
    changes = {name: np.zeros(shape, np.float32 if "final" in name else np.float16) for name, shape in change.items()}
    d_o = changes.pop("d_o", case.d_o)
    with pytest.raises(ValueError) as caught:
        attngen.kda_bwd(*case.inputs(), d_o, **changes, **case.options)
    assert words in str(caught.value)


def test_sums_need_their_room():
    x, heads = np.zeros((1, 70, 2, 64), np.float32), np.zeros(2, np.float32)
    call = _ffi.function("kda_gate_bwd")
    with pytest.raises(ValueError, match="partials has 1116 bytes; 1120 are wanted"):
        call(0, 0, None, x, x, x.copy(), heads, None, heads.copy(), None, np.zeros(279, np.float32), None, None, 2,
             -5.0, True)


def test_kda_without_gradients_is_the_prefill(rng, dtype):
    case = Case(rng, dtype, T=9)
    o, final = attngen.kda(*case.inputs(), output_final_state=True, **case.options)
    expected = attngen.kda_prefill(*case.inputs(), output_final_state=True, **case.options)
    assert np.array_equal(o, expected[0]) and np.array_equal(final, expected[1])


def test_gradients_of_keys_alone_have_the_keys_type():
    bf16 = pytest.importorskip("ml_dtypes").bfloat16
    q = np.ones((1, 70, 2, 64), np.float16)
    heads = np.ones((1, 70, 2, 64), np.float32)

    def call(k, d_k, d_k_heads):
        return _ffi.function("kda_qk_bwd")(0, 0, None, None, k, None, None, None, None, d_k_heads, None, None, d_k, None,
                                           None, None, True, 0)

    call(q, np.empty_like(q), heads)
    with pytest.raises(ValueError, match="d_k"):
        call(q, _arrays._pass(np.empty(q.shape, bf16)), heads)
    with pytest.raises(ValueError, match="num_v_heads is unknown"):
        call(q, np.empty_like(q), None)
