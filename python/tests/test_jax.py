# SPDX-License-Identifier: MIT
"""Arrays of JAX on the CPU."""

import numpy as np
import pytest

import attngen
import reference as ref

jax = pytest.importorskip("jax", reason="needs JAX (pip install jax)")
jax.config.update("jax_platforms", "cpu")  # a GPU's arrays are refused
jnp = jax.numpy


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_prefill_takes_and_returns_arrays_of_jax(rng, name):
    q, k, v = (jnp.asarray(rng.standard_normal((1, 70, 2, 64)), name) for _ in range(3))
    g, beta = jnp.asarray(-rng.random((1, 70, 2, 64)), "float32"), jnp.asarray(rng.random((1, 70, 2)), "float32")
    o, final = attngen.kda_prefill(q, k, v, g, beta, output_final_state=True, use_qk_l2norm_in_kernel=True)
    assert isinstance(o, jax.Array) and o.dtype == name and isinstance(final, jax.Array)
    expected, last = ref.kda(ref.l2(q), ref.l2(k), v, g, beta)
    assert ref.relative(o, expected) < 4e-3 and ref.relative(final, last) < 1e-5


def test_attention_takes_arrays_of_jax(rng):
    q, k, v = (jnp.asarray(rng.standard_normal((2, 9, 2, 64)), "bfloat16") for _ in range(3))
    assert ref.relative(attngen.attn_fwd(q, k, v, causal=True), ref.attention(q, k, v, causal=True)[0]) < 4e-3


def test_states_are_numpy_arrays_beside_arrays_of_jax(rng):
    q = jnp.ones((1, 1, 64), "float16")
    decay = jnp.zeros(1, "float32")
    with pytest.raises(ValueError, match="state is an array of JAX, which does not change"):
        attngen.la_decode(q, q, q, jnp.zeros((1, 1, 64, 64), "float32"), decay)
    state = np.zeros((1, 1, 64, 64), np.float32)
    o = attngen.la_decode(q, q, q, state, decay)
    assert isinstance(o, jax.Array) and (state == 1).all() and float(o[0, 0, 0]) == 8.0
