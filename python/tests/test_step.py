# SPDX-License-Identifier: MIT
"""kda_step and gdn_step on NumPy's arrays: steps against the convolution of whole sequences and the recurrence."""

import numpy as np
import pytest

import attngen
import reference as ref

T, H, HV, D, W = 5, 1, 2, 128, 4
CHANNELS = (2 * H + HV) * D


def normal(rng, dtype, *shape, scale=1.0, mean=0.0):
    return (rng.standard_normal(shape) * scale + mean).astype(dtype)


def layer(rng, scalar):
    """Weights of a layer."""
    gates = (HV,) if scalar else (HV, D)
    return {"conv_w": normal(rng, np.float32, W, CHANNELS, scale=0.5), "conv_bias": normal(rng, np.float32, CHANNELS, scale=0.2),
            "A_log": normal(rng, np.float32, HV, scale=0.3), "dt_bias": normal(rng, np.float32, *gates),
            "norm_w": normal(rng, np.float32, D, scale=0.3, mean=1)}


def tokens(rng, dtype, B, scalar):
    gates = (B, T, HV) if scalar else (B, T, HV, D)
    return (normal(rng, dtype, B, T, CHANNELS), normal(rng, dtype, *gates), normal(rng, dtype, B, T, HV),
            normal(rng, dtype, B, T, HV, D))


def expected(weights, x, gate, beta, z, scalar, bound, silu):
    """Outputs of all tokens and the last states [B, HV, K, V]: the sequence at once."""
    B = x.shape[0]
    past = np.concatenate([np.zeros((B, W - 1, CHANNELS)), ref.f64(x)], 1)
    y = ref.f64(weights["conv_bias"]) + sum(ref.f64(weights["conv_w"])[i] * past[:, i:i + T] for i in range(W))
    y = y * ref.sigmoid(y)
    q, k, v = (a.reshape(B, T, -1, D) for a in np.split(y, [H * D, 2 * H * D], 2))
    if scalar:
        g = ref.gate(gate[..., None], weights["A_log"], weights["dt_bias"][:, None], bound)
        g = np.repeat(g, D, -1)
    else:
        g = ref.gate(gate, weights["A_log"], weights["dt_bias"], bound)
    o, state = ref.kda(ref.l2(q), ref.l2(k), v, g, ref.sigmoid(ref.f64(beta)))
    o = o / np.sqrt((o * o).mean(-1, keepdims=True) + 1e-5) * ref.f64(weights["norm_w"]) * ref.sigmoid(ref.f64(z))
    return o * ref.f64(z) if silu else o, state


@pytest.mark.parametrize("scalar", [False, True])
@pytest.mark.parametrize("layout", ["SD", "DS"])
def test_steps_are_the_sequence(rng, dtype, tolerance, scalar, layout):
    B, slots = 2, np.array([3, 1], np.int32)
    weights = layer(rng, scalar)
    x, gate, beta, z = tokens(rng, dtype, B, scalar)
    shape = (5, W - 1, CHANNELS) if layout == "SD" else (5, CHANNELS, W - 1)
    windows = np.full(shape, 7, dtype)
    windows[slots] = 0
    states = np.full((5, HV, D, D), 7, np.float32)
    states[slots] = 0
    step = attngen.gdn_step if scalar else attngen.kda_step
    options = {"z_form": "silu"} if scalar else {"lower_bound": -5.0}
    outs = [step(x[:, t], weights["conv_w"], windows, gate[:, t], beta[:, t], states, conv_bias=weights["conv_bias"],
                 A_log=weights["A_log"], dt_bias=weights["dt_bias"], z=z[:, t], norm_w=weights["norm_w"], slots=slots,
                 eps=1e-5, **options) for t in range(T)]
    o, state = expected(weights, x, gate, beta, z, scalar, None if scalar else -5.0, scalar)
    assert outs[0].shape == (B, HV, D) and outs[0].dtype == dtype
    assert ref.relative(np.stack(outs, 1), o) < tolerance
    assert ref.relative(states[slots].swapaxes(-1, -2), state) < 1e-5
    last = x[:, T - W + 1:]
    assert np.array_equal(windows[slots], last if layout == "SD" else last.swapaxes(1, 2))
    assert (windows[[0, 2, 4]] == 7).all() and (states[[0, 2, 4]] == 7).all()


def inputs(rng, dtype, B=3):
    weights = layer(rng, False)
    x, gate, beta, _ = (a[:, 0] for a in tokens(rng, dtype, B, False))
    return x, weights["conv_w"], normal(rng, dtype, B, W - 1, CHANNELS), gate, beta, normal(rng, np.float32, B, HV, D, D)


def test_padding_rows_and_windows_that_stay(rng, dtype):
    x, w, windows, gate, beta, states = inputs(rng, dtype)
    kept_windows, kept_states = windows.copy(), states.copy()
    out = attngen.kda_step(x, w, windows, gate, beta, states, lower_bound=-5.0, slots=np.array([-1, 2, 0], np.int32),
                           null_slot=0, zero_padding=True, conv_state_update=False)
    assert (out[[0, 2]] == 0).all() and (out[1] != 0).any()
    assert np.array_equal(windows, kept_windows) and np.array_equal(states[:2], kept_states[:2])
    assert (states[2] != kept_states[2]).any()


def test_pools_with_gaps_states_of_16_bits_and_weights_by_parts(rng, dtype, tolerance):
    x, w, windows, gate, beta, states = inputs(rng, dtype)
    narrow = np.zeros((3, HV + 1, D, D), dtype)
    narrow[:, :HV] = states
    states[:] = narrow[:, :HV]
    pool = np.zeros((3, W + 2, CHANNELS), dtype)
    pool[:, :W - 1] = windows
    one = attngen.kda_step(x, w, windows, gate, beta, states, lower_bound=-5.0)
    two = attngen.kda_step(x, w, pool[:, :W - 1], gate, beta, narrow[:, :HV], lower_bound=-5.0)
    assert np.array_equal(one, two) and np.array_equal(pool[:, :W - 1], windows) and (pool[:, W - 1:] == 0).all()
    assert ref.relative(narrow[:, :HV], states) < tolerance and (narrow[:, HV] == 0).all()
    x, w, windows, gate, beta, states = inputs(rng, dtype)
    x, windows = x[:, :3 * D], np.ascontiguousarray(windows[..., :3 * D])  # one head of each
    w, gate, beta, states = w[:, :3 * D].copy(), gate[:, :1].copy(), beta[:, :1].copy(), states[:, :1].copy()
    parts = np.ascontiguousarray(w.reshape(W, 3, D).swapaxes(0, 1))
    again = windows.copy(), states.copy()
    assert np.array_equal(attngen.kda_step(x, w, windows, gate, beta, states, lower_bound=-5.0),
                          attngen.kda_step(x, parts, again[0], gate, beta, again[1], lower_bound=-5.0))


@pytest.mark.parametrize("change, message", [
    (lambda a: a.update(x=a["x"][:, :-D]), "x has 384 channels|conv_w has"),
    (lambda a: a.update(conv_state=a["conv_state"][:, :2]), "conv_state has 2 x 512 a slot; 3 x 512 or 512 x 3"),
    (lambda a: a.update(state=a["state"][..., :64, :64]), "128"),
    (lambda a: a.update(z_form="tanh"), "z_form is 'tanh'"),
    (lambda a: a.update(norm_w=np.ones(D, np.float32)), "z is NULL and norm_w is not"),
    (lambda a: a.update(slots=np.zeros(2, np.int32)), "slots has 2 entries; 3 are wanted"),
    (lambda a: a.update(eps=-1.0, norm_w=np.ones(D, np.float32), z=a["gate"]), "eps = -1"),
])
def test_what_is_wrong_is_named(rng, dtype, change, message):
    arguments = dict(zip(("x", "conv_w", "conv_state", "gate", "beta", "state"), inputs(rng, dtype)), lower_bound=-5.0)
    change(arguments)
    with pytest.raises(ValueError, match=message):
        attngen.kda_step(**arguments)
