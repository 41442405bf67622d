# SPDX-License-Identifier: MIT
"""FLA's functions with attngen as their backend, with the route asserted; FlashKDA's and FlashMLA's interfaces."""

import subprocess
import sys

import pytest

import attngen
import reference as ref

torch = pytest.importorskip("torch", reason="needs torch 2.10 or newer (pip install torch)")

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]


@pytest.fixture(scope="module")
def fla():
    pytest.importorskip("fla.ops.kda", reason="needs flash-linear-attention 0.5.2 or newer")
    import attngen.fla

    attngen.fla.register()
    return attngen.fla


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def host(x):
    return x.detach().float().cpu().numpy().copy()


def inputs(device, B=1, T=100, H=2, HV=2, K=64, raw=False, seed=0):
    torch.manual_seed(seed)
    q, k, v = (torch.randn(B, T, n, K).bfloat16().to(device) for n in (H, H, HV))
    g, beta = torch.randn(B, T, HV, K).to(device), torch.randn(B, T, HV).bfloat16().to(device)
    return (q, k, v, g, beta) if raw else (q, k, v, -g.abs() * 0.1, beta.sigmoid())


def not_asked(fla, name):
    """Skips where this version of FLA asks no backend for the function."""
    if not fla.of_function:
        pytest.skip(f"flash-linear-attention 0.5.2 has no dispatch of {name}")


def routed(fla, name, call):
    before = fla.served[name]
    result = call()
    assert fla.served[name] == before + 1, f"{name} was not served: {fla.declined.get(name)}"
    return result


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("packed", [False, True])
def test_chunk_kda_is_served(fla, device, packed):
    from fla.ops.kda import chunk_kda

    q, k, v, g, beta = inputs(device, B=1 if packed else 2, T=135, HV=4, raw=True)
    A_log, dt_bias = torch.randn(4, device=device) * 0.3, torch.randn(4 * 64, device=device)
    cu = torch.tensor([0, 3, 70, 135], device=device) if packed else None
    N = 3 if packed else 2
    h0 = torch.randn(N, 4, 64, 64, device=device)
    o, state = routed(fla, "chunk_kda", lambda: chunk_kda(
        q, k, v, g, beta, initial_state=h0, output_final_state=True, use_qk_l2norm_in_kernel=True, cu_seqlens=cu,
        use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True, safe_gate=True, lower_bound=-5.0, A_log=A_log,
        dt_bias=dt_bias, state_v_first=True))
    gate = ref.gate(host(g), host(A_log), host(dt_bias), -5.0)
    args = ref.l2(host(q)), ref.l2(host(k)), host(v), gate, ref.sigmoid(host(beta))
    kv = host(h0).swapaxes(-1, -2)
    expected, last = ref.kda_packed(*args, [0, 3, 70, 135], kv) if packed else ref.kda(*args, kv)
    assert ref.relative(host(o), expected) < 0.02 and ref.relative(host(state).swapaxes(-1, -2), last) < 0.02


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("packed", [False, True])
def test_chunk_gated_delta_rule_is_served(fla, device, packed):
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    q, k, v, g, beta = inputs(device, B=1 if packed else 2, T=135, HV=6, raw=True)
    g = g[..., 0].contiguous()
    A_log, dt_bias = torch.randn(6, device=device) * 0.3, torch.randn(6, device=device)
    cu = torch.tensor([0, 3, 70, 135], device=device) if packed else None
    h0 = torch.randn(3 if packed else 2, 6, 64, 64, device=device)
    o, state = routed(fla, "chunk_gated_delta_rule", lambda: chunk_gated_delta_rule(
        q, k, v, g, beta, initial_state=h0, output_final_state=True, use_qk_l2norm_in_kernel=True, cu_seqlens=cu,
        use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True, A_log=A_log, dt_bias=dt_bias, state_v_first=True))
    gate = ref.gate(host(g)[..., None], host(A_log), host(dt_bias)[:, None])
    args = ref.l2(host(q)), ref.l2(host(k)), host(v), gate.repeat(64, -1), ref.sigmoid(host(beta))
    kv = host(h0).swapaxes(-1, -2)
    expected, last = ref.kda_packed(*args, [0, 3, 70, 135], kv) if packed else ref.kda(*args, kv)
    assert ref.relative(host(o), expected) < 0.02 and ref.relative(host(state).swapaxes(-1, -2), last) < 0.02


@pytest.mark.parametrize("changes, reason", [
    ({"chunk_size": 32}, "chunks of 64 tokens, got 32"),
    ({"cp_context": object()}, "context parallelism"),
    ({"g": torch.zeros(1, 100, 2, 64)}, "g and beta of [B, T, HV]"),
    ({"use_gate_in_kernel": True}, "an A_log for each value head"),
    ({"surprise": 1}, "does not know surprise"),
    ({"initial_state": torch.zeros(1, 2, 64, 64).bfloat16()}, "initial_state in float32"),
])
def test_what_of_the_gated_delta_rule_is_not_served_is_declined(fla, changes, reason):
    q, k, v, g, beta = inputs("cpu")
    given = {"q": q, "k": k, "v": v, "g": g[..., 0], "beta": beta}
    accepted, found = fla.Gdn().chunk_gated_delta_rule_verifier(**{**given, **changes})
    assert not accepted and reason in found


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("T", [1, 4])
def test_a_decode_step_is_served(fla, device, T):
    not_asked(fla, "fused_recurrent_kda_fwd")
    from fla.ops.kda import fused_recurrent_kda

    q, k, v, g, beta = inputs(device, B=3, T=T, HV=4)
    h0 = torch.randn(3, 4, 64, 64, device=device)
    before = h0.clone()
    o, state = routed(fla, "fused_recurrent_kda_fwd", lambda: fused_recurrent_kda(
        q, k, v, g, beta, initial_state=h0, output_final_state=True, use_qk_l2norm_in_kernel=True))
    expected, last = ref.kda(ref.l2(host(q)), ref.l2(host(k)), host(v), host(g), host(beta), host(before))
    assert torch.equal(h0, before), "the caller's state is not the final state's place"
    assert ref.relative(host(o), expected) < 0.01 and ref.relative(host(state), last) < 1e-4
    o, state = routed(fla, "fused_recurrent_kda_fwd", lambda: fused_recurrent_kda(q, k, v, g, beta))
    expected, _ = ref.kda(host(q), host(k), host(v), host(g), host(beta))
    assert state is None and ref.relative(host(o), expected) < 0.01


@pytest.mark.parametrize("device", DEVICES)
def test_a_pool_of_states_is_served(fla, device):
    not_asked(fla, "fused_recurrent_kda_fwd")
    from fla.ops.kda.fused_recurrent import fused_recurrent_kda_fwd

    q, k, v, g, beta = inputs(device, B=1, T=3)
    pool = torch.randn(6, 2, 64, 64, device=device)
    before = host(pool)
    cu, slots = torch.tensor([0, 1, 2, 3], device=device), torch.tensor([4, 0, 2], dtype=torch.int32, device=device)
    o, state = routed(fla, "fused_recurrent_kda_fwd", lambda: fused_recurrent_kda_fwd(
        q, k, v, g, beta, initial_state=pool, inplace_final_state=True, cu_seqlens=cu, ssm_state_indices=slots))
    expected, last = ref.kda_packed(host(q), host(k), host(v), host(g), host(beta), [0, 1, 2, 3], before[[4, 0, 2]])
    assert state is pool and o.shape == v.shape and ref.relative(host(o), expected) < 0.01
    assert ref.relative(host(pool)[[4, 0, 2]], last) < 1e-4 and (host(pool)[[1, 3, 5]] == before[[1, 3, 5]]).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("packed", [False, True])
def test_the_stages_of_trainings_forward_are_served(fla, device, packed):
    from fla.ops.common.chunk_delta_h import chunk_gated_delta_rule_fwd_h
    from fla.ops.gla.chunk import chunk_gla_fwd_o_gk
    from fla.ops.kda.chunk_intra import chunk_kda_fwd_intra
    from fla.ops.kda.gate import kda_gate_chunk_cumsum
    from fla.ops.kda.wy_fast import recompute_w_u_fwd

    q, k, v, g, beta = inputs(device, B=1 if packed else 2, T=135, raw=True)
    q, k, beta = torch.nn.functional.normalize(q, dim=-1), torch.nn.functional.normalize(k, dim=-1), beta.sigmoid()
    A_log, dt_bias = torch.randn(2, device=device) * 0.3, torch.randn(2 * 64, device=device)
    bounds = [0, 3, 70, 135]
    cu = torch.tensor(bounds, device=device) if packed else None
    indices = torch.tensor([[0, 0], [1, 0], [1, 1], [2, 0], [2, 1]], device=device) if packed else None
    some = {"cu_seqlens": cu, "chunk_indices": indices}
    gk = routed(fla, "kda_gate_chunk_cumsum", lambda: kda_gate_chunk_cumsum(
        g=g, A_log=A_log, dt_bias=dt_bias, scale=1.4426950216293335, chunk_size=64, lower_bound=-5.0, **some))
    w, u, qg, kg, Aqk, Akk = routed(fla, "chunk_kda_fwd_intra", lambda: chunk_kda_fwd_intra(
        q=q, k=k, v=v, gk=gk, beta=beta, scale=0.125, safe_gate=True, disable_recompute=True, **some))
    again = routed(fla, "recompute_w_u_fwd", lambda: recompute_w_u_fwd(
        k=k, v=v, beta=beta, A=Akk, gk=gk, q=q, **some))
    for one, two in zip((w, u, qg, kg), again):
        assert ref.relative(host(one), host(two)) < 0.02
    h, v_new, final = routed(fla, "chunk_gated_delta_rule_fwd_h", lambda: chunk_gated_delta_rule_fwd_h(
        k=kg, w=w, u=u, gk=gk, output_final_state=True, **some))
    assert h.shape == (q.shape[0], 5 if packed else 3, 2, 64, 64)
    output = chunk_gla_fwd_o_gk if fla.of_function else fla.Gla().chunk_gla_fwd_o_gk  # 0.5.2 asks no backend
    o = routed(fla, "chunk_gla_fwd_o_gk", lambda: output(
        q=q, v=v_new, g=gk, A=Aqk, h=h, scale=0.125, **some))
    args = host(q), host(k), host(v), ref.gate(host(g), host(A_log), host(dt_bias), -5.0), host(beta)
    expected, last = ref.kda_packed(*args, bounds) if packed else ref.kda(*args)
    assert ref.relative(host(o), expected) < 0.02 and ref.relative(host(final), last) < 0.02


@pytest.mark.parametrize("changes, reason", [
    ({"q": torch.zeros(1, 100, 2, 64)}, "q and k of one shape and dtype"),
    ({"chunk_size": 32}, "chunks of 64 tokens, got 32"),
    ({"return_intermediate_states": True}, "return_intermediate_states"),
    ({"cp_context": object()}, "context parallelism"),
    ({"use_gate_in_kernel": True, "lower_bound": -9.0}, "lower_bound in [-5, 0), got -9.0"),
    ({"use_gate_in_kernel": True}, "A_log without lower_bound"),
    ({"surprise": 1}, "does not know surprise"),
    ({"g": torch.zeros(1, 100, 2, 64, dtype=torch.float16)}, "g in torch.bfloat16 or float32"),
    ({"cu_seqlens": torch.tensor([0, 100]), "initial_state": torch.zeros(2, 2, 64, 64)}, "an initial state for each"),
])
def test_what_is_not_served_is_declined_with_a_reason(fla, changes, reason):
    names = ("q", "k", "v", "g", "beta")
    accepted, found = fla.Prefill().chunk_kda_verifier(**{**dict(zip(names, inputs("cpu"))), **changes})
    assert not accepted and reason in found


def test_gradients_and_long_rows_are_declined(fla):
    q, k, v, g, beta = inputs("cpu")
    with torch.enable_grad():
        accepted, reason = fla.Kda().fused_recurrent_kda_fwd_verifier(q.clone().requires_grad_(), k, v, g, beta,
                                                                      inplace_final_state=False)
    assert not accepted and "no gradient" in reason
    accepted, reason = fla.Kda().fused_recurrent_kda_fwd_verifier(q, k, v, g, beta, inplace_final_state=False)
    assert not accepted and "16 tokens" in reason
    accepted, reason = fla.Common().chunk_gated_delta_rule_fwd_h_verifier(k, k, k, g=g[..., 0])
    assert not accepted and "gk" in reason


# ---- FlashKDA, FlashMLA --------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_flash_kda_forward(device, dtype):
    from attngen import flash_kda

    q, k, v, g, beta = inputs(device, T=90, K=128, raw=True)
    g = g.bfloat16()
    A_log, dt_bias = torch.randn(2, device=device) * 0.3, torch.randn(2, 128, device=device)
    cu = torch.tensor([0, 20, 90], device=device)
    h0 = torch.randn(2, 2, 128, 128, device=device).to(dtype)
    out, last = torch.empty_like(v), torch.empty_like(h0)
    assert flash_kda.get_workspace_size(90, 2, 2) == 0
    flash_kda.fwd(q, k, v, g, beta, 0.1, out, A_log=A_log, dt_bias=dt_bias, lower_bound=-5.0, initial_state=h0,
                  final_state=last, cu_seqlens=cu)
    gate = ref.gate(host(g), host(A_log), host(dt_bias), -5.0)
    expected, state = ref.kda_packed(ref.l2(host(q)), ref.l2(host(k)), host(v), gate, ref.sigmoid(host(beta)),
                                     [0, 20, 90], host(h0).swapaxes(-1, -2), 0.1)
    assert ref.relative(host(out), expected) < 0.02 and ref.relative(host(last).swapaxes(-1, -2), state) < 0.02
    with pytest.raises(ValueError, match="checkpoint_state is not served"):
        flash_kda.fwd(q, k, v, g, beta, 0.1, out, A_log, dt_bias, -5.0, checkpoint_state=h0)


@pytest.mark.parametrize("device", DEVICES)
def test_flash_mla_with_kvcache(device):
    from attngen import flash_mla

    torch.manual_seed(1)
    q = torch.randn(2, 2, 16, 576).bfloat16().to(device)
    cache = torch.randn(6, 64, 1, 576).bfloat16().to(device)
    lengths = torch.tensor([70, 130], dtype=torch.int32, device=device)
    table = torch.tensor([[5, 0, 1], [2, 3, 4]], dtype=torch.int32, device=device)
    metadata, splits = flash_mla.get_mla_metadata(lengths, 32, 1)
    o, lse = flash_mla.flash_mla_with_kvcache(q, cache, table, lengths, 512, metadata, splits, causal=True)
    c, rows = host(cache)[:, :, 0], host(q).reshape(4, 16, 576)
    expected, expected_lse = ref.mla(rows[..., :512], rows[..., 512:], c[..., :512], c[..., 512:], lengths.tolist(),
                                     table.tolist(), 2, 576 ** -0.5)
    assert o.shape == (2, 2, 16, 512) and ref.relative(host(o).reshape(4, 16, 512), expected) < 0.01
    assert lse.shape == (2, 16, 2) and abs(host(lse).transpose(0, 2, 1).reshape(4, 16) - expected_lse).max() < 5e-3
    with pytest.raises(ValueError, match="topk_length is not served"):
        flash_mla.flash_mla_with_kvcache(q, cache, table, lengths, 512, topk_length=lengths)
    listed = torch.tensor([[[3, -1, 70, 3], [0, 1, 2, 384]], [[-1, -1, -1, -1], [383, 5, 6, 7]]], dtype=torch.int32,
                          device=device)
    o, lse = flash_mla.flash_mla_with_kvcache(q, cache, None, None, 512, indices=listed)
    lists = [[i for i in one if 0 <= i < 384] for one in listed.reshape(4, 4).tolist()]
    expected, expected_lse = ref.mla_lists(rows[..., :512], rows[..., 512:], c.reshape(384, 576), lists, 576 ** -0.5)
    assert ref.relative(host(o).reshape(4, 16, 512), expected) < 0.01
    found = host(lse).transpose(0, 2, 1).reshape(4, 16)
    assert (found[2] == float("-inf")).all() and abs(found - expected_lse)[[0, 1, 3]].max() < 5e-3


def test_the_modules_drop_in_under_their_names():
    code = ("import attngen; attngen.as_flash_kda(); attngen.as_flash_mla();"
            "import flash_kda, flash_mla, importlib.util; from flash_mla import flash_mla_with_kvcache as f;"
            "print(flash_kda.fwd.__module__, f.__module__, importlib.util.find_spec('flash_kda') is not None)")
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert found.split() == ["attngen.flash_kda", "attngen.flash_mla", "True"]
    code = ("import sys, types, attngen; sys.modules['flash_kda'] = types.ModuleType('flash_kda')\n"
            "try: attngen.as_flash_kda()\nexcept RuntimeError as error: print(error)")
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "flash_kda is imported already" in found


def test_arguments_by_position_that_versions_number_otherwise_are_declined(fla):
    if fla.of_function:
        pytest.skip("is of flash-linear-attention 0.5.2")
    q, k, v, g, beta = inputs("cpu")
    kda, gk = fla.KdaOfOneRegistry(), g.float()
    given = (q, k, v, gk, beta, None, None, 64, None, True)
    assert kda.verify("chunk_kda_fwd_intra", *given) == (True, None)
    accepted, reason = kda.verify("chunk_kda_fwd_intra", *given, True)
    assert not accepted and "takes 10 positional arguments of chunk_kda_fwd_intra, got 11" in reason
    assert kda.verify("kda_gate_fwd", gk) == (False, "attngen does not serve kda_gate_fwd")
