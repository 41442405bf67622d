# SPDX-License-Identifier: MIT
"""FLA's functions of KDA's training with attngen as their backend, with the route asserted."""

import pytest

import attngen

torch = pytest.importorskip("torch", reason="needs torch 2.10 or newer (pip install torch)")

from test_autograd import definition, inputs, relative  # noqa: E402
from test_fla import DEVICES, fla, routed  # noqa: E402, F401


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("disable_recompute", [False, True])
def test_chunk_kda_trains(fla, device, disable_recompute):  # noqa: F811
    from fla.ops.kda import chunk_kda

    x = inputs(device, T=70)
    flat = x["dt_bias"].detach().reshape(-1).requires_grad_()
    o, final = routed(fla, "chunk_kda", lambda: chunk_kda(
        **{**x, "dt_bias": flat}, output_final_state=True, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
        use_beta_sigmoid_in_kernel=True, safe_gate=True, lower_bound=-5.0, disable_recompute=disable_recompute))
    d_o, d_final = torch.randn_like(o), torch.randn_like(final)
    torch.autograd.backward((o, final), (d_o, d_final))
    exact = {name: t.detach().double().cpu().requires_grad_() for name, t in x.items()}
    torch.autograd.backward(definition(**exact), (d_o.double().cpu(), d_final.double().cpu()))
    x["dt_bias"] = flat
    for name, t in x.items():
        assert t.grad.shape == t.shape and t.grad.dtype is t.dtype
        assert relative(t.grad, exact[name].grad.reshape(t.shape)) < 0.02, name


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("packed", [False, True])
@torch.no_grad()
def test_stages_of_the_backward_pass_are_served(fla, device, packed):  # noqa: F811
    if fla.of_function:
        from fla.modules.norm.l2norm import l2norm_bwd
    else:
        from fla.modules.l2norm import l2norm_bwd
    from fla.ops.common.chunk_delta_h import chunk_gated_delta_rule_bwd_dhu
    from fla.ops.common.gate import fused_beta_sigmoid_bwd
    from fla.ops.kda.chunk_bwd import chunk_kda_bwd_dAv, chunk_kda_bwd_wy_dqkg_fused
    from fla.ops.kda.chunk_intra import chunk_kda_bwd_intra
    from fla.ops.kda.gate import kda_gate_bwd

    x = inputs(device, B=1 if packed else 2, T=130, N=2)
    cu = torch.tensor([0, 65, 130], device=device) if packed else None
    indices = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], device=device) if packed else None
    told = {"cu_seqlens": cu, "chunk_indices": indices}
    gate = {"A_log": x["A_log"], "dt_bias": x["dt_bias"], "lower_bound": -5.0}
    d_o, d_final = torch.randn_like(x["v"]), torch.randn_like(x["initial_state"])
    whole = attngen.kda_bwd(*(x[n] for n in ("q", "k", "v", "g", "beta")), d_o, d_final_state=d_final,
                            initial_state=x["initial_state"], use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
                            use_beta_sigmoid_in_kernel=True, cu_seqlens=cu, **gate)
    gk, q, k, q_rstd, k_rstd = attngen.kda_gate(x["g"], q=x["q"], k=x["k"], cu_seqlens=cu, **gate)
    beta, v, scale = x["beta"].sigmoid(), x["v"], 0.125
    w, u, qg, kg, Aqk, Akk = attngen.kda_chunk_intra(q, k, v, gk, beta, safe_gate=True, with_qg=True, cu_seqlens=cu)
    h, v_new, _ = attngen.kda_chunk_h(kg, w, u, gk, initial_state=x["initial_state"], cu_seqlens=cu,
                                      num_chunks=4 if packed else None)
    dAqk, dv = routed(fla, "chunk_kda_bwd_dAv", lambda: chunk_kda_bwd_dAv(q, k, v_new, d_o, Aqk, scale, **told))
    dh, dh0, dv = routed(fla, "chunk_gated_delta_rule_bwd_dhu", lambda: chunk_gated_delta_rule_bwd_dhu(
        q=qg, k=kg, w=w, do=d_o, dv=dv, gk=gk, h0=x["initial_state"], dht=d_final, scale=scale, **told))
    dq, dk, dv, db, dg, dAkk = routed(fla, "chunk_kda_bwd_wy_dqkg_fused", lambda: chunk_kda_bwd_wy_dqkg_fused(
        q, k, v, v_new, gk, beta, Akk, h, d_o, dh, dv, scale, **told))
    dq, dk, db, dg = routed(fla, "chunk_kda_bwd_intra", lambda: chunk_kda_bwd_intra(
        q, k, gk, beta, dAqk, dAkk, dq, dk, db, dg, safe_gate=True, **told))
    assert torch.equal(dh0[0].isfinite().all(), torch.tensor(True, device=device))
    summed = dg.clone()  # what FLA's chunk_local_cumsum does
    for first, last in ((0, 65), (65, 130)) if packed else ((0, 130),):
        for a in range(first, last, 64):
            rows = slice(a, min(a + 64, last))
            summed[:, rows] = dg[:, rows].flip(1).cumsum(1).flip(1)
    dg, dA, dbias = routed(fla, "kda_gate_bwd", lambda: kda_gate_bwd(x["g"], x["A_log"], x["dt_bias"], summed, -5.0))
    dq, dk = (t.view(*t.shape[:2], 2, 2, 64).sum(3) for t in (dq, dk))  # as FLA sums groups
    d_q = routed(fla, "l2norm_bwd", lambda: l2norm_bwd(q, q_rstd, dq))
    d_k = routed(fla, "l2norm_bwd", lambda: l2norm_bwd(k, k_rstd, dk))
    d_beta = routed(fla, "fused_beta_sigmoid_bwd", lambda: fused_beta_sigmoid_bwd(x=x["beta"], dy=db, scale=1.0))
    twice = routed(fla, "fused_beta_sigmoid_bwd", lambda: fused_beta_sigmoid_bwd(x=x["beta"], dy=db, scale=2.0))
    assert relative(twice, 2 * d_beta) < 1e-5
    for name, a, b in zip("q k v g beta A_log dt_bias h0".split(), (d_q, d_k, dv, dg, d_beta, dA, dbias, dh0), whole):
        assert a.dtype is b.dtype and relative(a, b) < 0.02, name


def test_what_is_not_served_is_declined_with_a_reason(fla):  # noqa: F811
    x = {name: t.detach() for name, t in inputs("cpu", B=1, T=10).items()}
    q, v, g = x["q"].repeat_interleave(2, 2), x["v"], x["g"].float()
    kda, common = fla.Kda(), fla.Common()

    def reason(answer):
        assert answer[0] is False
        return answer[1]

    A = v.new_zeros(1, 10, 4, 64)
    assert kda.chunk_kda_bwd_dAv_verifier(q, q, v, v, A, 0.1) == (True, None)
    assert "chunks of 64 tokens, got 32" in reason(kda.chunk_kda_bwd_dAv_verifier(q, q, v, v, A, 0.1, chunk_size=32))
    assert "use_graph" in reason(kda.chunk_kda_bwd_dAv_verifier(q, q, v, v, A, 0.1, use_graph=True))
    assert "float16" in reason(kda.chunk_kda_bwd_dAv_verifier(q, q, v.float(), v, A, 0.1))
    assert "A of [B, T, HV, 64]" in reason(kda.chunk_kda_bwd_dAv_verifier(q, q, v, v, A.float(), 0.1))
    assert "A and scale" in reason(kda.chunk_kda_bwd_dAv_verifier(q, q, v, v))
    dhu = (v, v, v, v, v)
    assert common.chunk_gated_delta_rule_bwd_dhu_verifier(*dhu, gk=g) == (True, None)
    assert "(gk) alone" in reason(common.chunk_gated_delta_rule_bwd_dhu_verifier(*dhu, g=g[..., 0], gk=g))
    assert "(gk) alone" in reason(common.chunk_gated_delta_rule_bwd_dhu_verifier(*dhu))
    assert "alike" in reason(common.chunk_gated_delta_rule_bwd_dhu_verifier(v, v, v, v, v[:, :5], gk=g))
    assert "lower_bound in [-5, 0)" in reason(kda.kda_gate_bwd_verifier(g, None, None, g, lower_bound=-6.0))
    assert "dyg as g" in reason(kda.kda_gate_bwd_verifier(g, x["A_log"], None, None))
    rstd = x["q"][..., 0].float()
    assert fla.Norm().l2norm_bwd_verifier(x["q"], rstd, x["q"].float()) == (True, None)
    assert "dy in float32" in reason(fla.Norm().l2norm_bwd_verifier(x["q"], rstd, x["q"]))
    assert "64 or 128" in reason(fla.Norm().l2norm_bwd_verifier(x["q"][..., :32], rstd, x["q"][..., :32].float()))
    assert "scale of 1 or 2" in reason(common.fused_beta_sigmoid_bwd_verifier(x["beta"], x["beta"], 3.0))
    assert "K of 64 or 128" in reason(fla.Prefill().chunk_kda_verifier(
        q[..., :32], q[..., :32], v[..., :32], g[..., :32], x["beta"]))
