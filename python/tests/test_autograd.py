# SPDX-License-Identifier: MIT
"""attngen.kda, which torch differentiates: against torch's own gradients of the definition in float64."""

import pytest

import attngen

torch = pytest.importorskip("torch", reason="needs torch 2.10 or newer (pip install torch)")

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]
OPTIONS = {"use_qk_l2norm_in_kernel": True, "use_gate_in_kernel": True, "use_beta_sigmoid_in_kernel": True,
           "lower_bound": -5.0, "output_final_state": True}


def inputs(device, B=2, T=70, H=2, HV=4, K=64, N=None, dtype=torch.bfloat16, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape, dtype=dtype, scale=1.0):
        return (torch.randn(*shape, generator=generator) * scale).to(dtype).to(device).requires_grad_()

    return {"q": normal(B, T, H, K), "k": normal(B, T, H, K), "v": normal(B, T, HV, K), "g": normal(B, T, HV, K),
            "beta": normal(B, T, HV, dtype=torch.float32),
            "initial_state": normal(N or B, HV, K, K, dtype=torch.float32),
            "A_log": normal(HV, dtype=torch.float32, scale=0.3), "dt_bias": normal(HV, K, dtype=torch.float32)}


def definition(q, k, v, g, beta, initial_state, A_log, dt_bias):
    """With OPTIONS, of sequences of one length."""
    group = v.shape[2] // q.shape[2]
    q, k = (x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt() for x in (q, k))
    q, k = q.repeat_interleave(group, 2) * q.shape[-1] ** -0.5, k.repeat_interleave(group, 2)
    g, beta = -5 * torch.sigmoid(A_log.exp()[:, None] * (g + dt_bias)), beta.sigmoid()
    S, o = initial_state, []
    for t in range(q.shape[1]):
        S = g[:, t].exp()[..., None] * S
        error = v[:, t] - torch.einsum("bhk,bhkv->bhv", k[:, t], S)
        S = S + (beta[:, t, :, None] * k[:, t])[..., None] * error[:, :, None]
        o.append(torch.einsum("bhk,bhkv->bhv", q[:, t], S))
    return torch.stack(o, 1), S


def relative(found, expected):
    found, expected = found.detach().double().cpu(), expected.detach().double().cpu()
    return float((found - expected).norm() / expected.norm())


def gradients_of_the_definition(x, d_o, d_final):
    exact = {name: t.detach().double().cpu().requires_grad_() for name, t in x.items()}
    o, final = definition(**exact)
    torch.autograd.backward((o, final), (d_o.double().cpu(), d_final.double().cpu()))
    return {name: t.grad for name, t in exact.items()}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("keep_states", [False, True])
def test_gradients_are_those_of_the_definition(device, keep_states):
    x = inputs(device)
    torch.manual_seed(1)
    o, final = attngen.kda(**x, **OPTIONS, keep_states=keep_states)
    assert o.requires_grad and final.requires_grad
    d_o, d_final = torch.randn_like(o), torch.randn_like(final)
    torch.autograd.backward((o, final), (d_o, d_final))
    for name, expected in gradients_of_the_definition(x, d_o, d_final).items():
        assert x[name].grad.dtype is x[name].dtype and x[name].grad.shape == x[name].shape
        # Few heads' A_log: a sum of terms of both signs (docs/numerics.md).
        assert relative(x[name].grad, expected) < (0.1 if name == "A_log" else 0.02), name


@pytest.mark.parametrize("device", DEVICES)
def test_inputs_that_require_none_get_none(device):
    x = {name: t.detach() for name, t in inputs(device).items()}
    x["v"].requires_grad_()
    o, _ = attngen.kda(**x, **OPTIONS)
    o.sum().backward()
    assert all((t.grad is not None) == (name == "v") for name, t in x.items())
    with torch.no_grad():
        assert not attngen.kda(**x, **OPTIONS)[0].requires_grad


@pytest.mark.parametrize("device", DEVICES)
def test_one_output_alone_has_a_gradient(device):
    x = inputs(device, T=20)
    attngen.kda(**x, **OPTIONS)[1].square().sum().backward()
    found = {name: t.grad.clone() for name, t in x.items()}
    exact = {name: t.detach().double().cpu().requires_grad_() for name, t in x.items()}
    definition(**exact)[1].square().sum().backward()
    assert not found["q"].any()
    for name in ("k", "v", "g", "beta", "initial_state"):
        assert relative(found[name], exact[name].grad) < 0.02, name


@pytest.mark.parametrize("device", DEVICES)
def test_packed_sequences_have_the_gradients_of_each(device):
    x = inputs(device, B=1, T=75, N=3)
    cu = torch.tensor([0, 5, 5, 70], dtype=torch.int64, device=device)
    o, final = attngen.kda(**x, **OPTIONS, cu_seqlens=cu, max_seqlen=65)
    d_o, d_final = torch.randn_like(o), torch.randn_like(final)
    torch.autograd.backward((o, final), (d_o, d_final))
    assert not x["q"].grad[:, 70:].any() and not x["g"].grad[:, 70:].any()
    assert torch.equal(x["initial_state"].grad[1], d_final[1])
    for n, (a, b) in enumerate(((0, 5), (5, 5), (5, 70))):
        if a == b:
            continue
        part = {name: t[:, a:b] if name in ("q", "k", "v", "g", "beta") else t for name, t in x.items()}
        part["initial_state"] = x["initial_state"][n:n + 1]
        expected = gradients_of_the_definition(part, d_o[:, a:b], d_final[n:n + 1])
        for name in ("q", "k", "v", "g", "beta"):
            assert relative(x[name].grad[:, a:b], expected[name]) < 0.02, (n, name)
        assert relative(x["initial_state"].grad[n], expected["initial_state"][0]) < 0.02


@pytest.mark.parametrize("device", DEVICES)
def test_views_of_a_fused_projection(device):
    x = inputs(device, T=20, H=2, HV=2)
    fused = torch.randn(2, 20, 3, 2, 64).to(torch.bfloat16).to(device).requires_grad_()
    x["q"], x["k"], x["v"] = fused.unbind(2)
    d_o = torch.randn(2, 20, 2, 64).to(torch.bfloat16).to(device)
    attngen.kda(**x, **OPTIONS)[0].backward(d_o)
    exact = {name: t.detach().double().cpu() for name, t in x.items()}
    whole = fused.detach().double().cpu().requires_grad_()
    exact["q"], exact["k"], exact["v"] = whole.unbind(2)
    definition(**exact)[0].backward(d_o.double().cpu())
    assert relative(fused.grad, whole.grad) < 0.02


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("keep_states", [False, True])
def test_compiled_training_steps_are_whole_and_have_the_same_bits(device, keep_states):
    def loss(x):
        o, final = attngen.kda(**{**x, "q": x["q"] * 2}, **OPTIONS, keep_states=keep_states)
        return o.float().square().sum() + final.sum()

    x, again = inputs(device, T=20), inputs(device, T=20)
    expected = loss(x)
    expected.backward()
    torch._dynamo.reset()
    backend = "aot_eager" if device == "cpu" else "inductor"
    found = torch.compile(loss, fullgraph=True, backend=backend)(again)
    found.backward()
    assert torch.equal(found, expected) or device == "cuda"
    for name in x:
        assert relative(again[name].grad, x[name].grad) < 1e-5, name


def test_second_derivatives_are_refused():
    x = inputs("cpu", T=5)
    o, _ = attngen.kda(**x, **OPTIONS)
    (d_v,) = torch.autograd.grad(o.float().square().sum(), x["v"], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable|does not require grad|differentiated"):
        d_v.float().sum().backward()


def test_the_prefill_names_the_function_that_has_gradients():
    x = inputs("cpu", T=5)
    with pytest.raises(RuntimeError, match="kda_prefill has no backward.*attngen.kda has gradients"):
        attngen.kda_prefill(**x, **OPTIONS)


def test_the_operator_passes_torchs_own_checks():
    from attngen import _torch

    _torch.define_operators()
    x = {name: t.detach() for name, t in inputs("cpu", B=1, T=5).items()}
    gradients = [torch.empty_like(x[name]) for name in ("q", "k", "v", "g", "beta", "A_log", "dt_bias")]
    args = (0, 0, None, *(x[name] for name in ("q", "k", "v", "g", "beta")), torch.randn_like(x["v"]), x["A_log"],
            x["dt_bias"], x["initial_state"], None, None, *gradients, torch.empty_like(x["initial_state"]), None, None,
            None, -5.0, 2, 1, True, False, True)
    torch.library.opcheck(torch.ops.attngen.kda_bwd.default, args)


@needs_gpu
def test_cuda_graphs_capture_training_steps():
    x = inputs("cuda", T=200)

    def step():
        o, final = attngen.kda(**x, **OPTIONS)
        return torch.autograd.grad((o, final), [*x.values()], (torch.ones_like(o), torch.ones_like(final)))

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        expected = [t.clone() for t in step()]
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    for t in found:
        t.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(found, expected))
