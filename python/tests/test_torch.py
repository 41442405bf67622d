# SPDX-License-Identifier: MIT
"""Tensors of torch: on the CPU by the reference, on a GPU by the kernels; custom operators; CUDA graphs."""

import numpy as np
import pytest

import attngen
import reference as ref

torch = pytest.importorskip("torch", reason="needs torch 2.10 or newer (pip install torch)")

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


def host(x):
    return x.detach().float().cpu().numpy().copy()


def kda(device, T=100, B=1, H=2, HV=2, K=64, dtype=torch.bfloat16, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape, dtype=dtype):
        return torch.randn(*shape, generator=generator).to(dtype).to(device)

    q, k, v = normal(B, T, H, K), normal(B, T, H, K), normal(B, T, HV, K)
    return q, k, v, -normal(B, T, HV, K, dtype=torch.float32).abs() * 0.1, normal(B, T, HV).sigmoid()


@pytest.mark.parametrize("device", DEVICES)
def test_prefill_and_decode_have_the_values_of_their_definitions(device):
    inputs = kda(device, B=2)
    o, state = attngen.kda_prefill(*inputs, output_final_state=True, use_qk_l2norm_in_kernel=True)
    q, k, v, g, beta = map(host, inputs)
    expected, last = ref.kda(ref.l2(q), ref.l2(k), v, g, beta)
    assert o.dtype is torch.bfloat16 and o.device == inputs[0].device
    assert ref.relative(host(o), expected) < 0.02 and ref.relative(host(state), last) < 0.02
    q, k, v, g, beta = new = kda(device, T=1, B=2, seed=1)
    before = host(state)
    o = attngen.kda_decode(*new, state, use_qk_l2norm_in_kernel=True)
    expected, last = ref.kda(ref.l2(host(q)), ref.l2(host(k)), host(v), host(g), host(beta), before)
    assert ref.relative(host(o), expected) < 0.02 and ref.relative(host(state), last) < 1e-4


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_cu_seqlens_of_both_widths(device, dtype):
    inputs = kda(device, T=200)
    cu = torch.tensor([0, 3, 70, 70, 200], dtype=dtype, device=device)
    o, _ = attngen.kda_prefill(*inputs, cu_seqlens=cu, use_qk_l2norm_in_kernel=True)
    q, k, v, g, beta = map(host, inputs)
    expected, _ = ref.kda_packed(ref.l2(q), ref.l2(k), v, g, beta, [0, 3, 70, 70, 200])
    assert ref.relative(host(o), expected) < 0.02


@pytest.mark.parametrize("device", DEVICES)
def test_attention_and_lightning_and_mla(device):
    q, k, v = (torch.randn(2, 130, 4, 64, device=device, dtype=torch.bfloat16) for _ in range(3))
    o, lse = attngen.attn_fwd(q, k, v, causal=True, return_lse=True)
    expected, expected_lse = ref.attention(host(q), host(k), host(v), causal=True)
    assert ref.relative(host(o), expected) < 0.01 and np.allclose(host(lse), expected_lse, atol=5e-3)
    q, k, v = (torch.randn(3, 4, 64, device=device, dtype=torch.bfloat16) for _ in range(3))
    state, decay = torch.randn(3, 4, 64, 64, device=device), torch.rand(4, device=device)
    expected, last = ref.lightning(host(q), host(k), host(v), host(state), host(decay))
    assert ref.relative(host(attngen.la_decode(q, k, v, state, decay)), expected) < 0.01
    assert ref.relative(host(state), last) < 1e-5
    q = torch.randn(2, 16, 576, device=device, dtype=torch.bfloat16)
    cache = torch.randn(6, 64, 576, device=device, dtype=torch.bfloat16)
    lengths = torch.tensor([70, 190], dtype=torch.int32, device=device)
    pages = torch.tensor([[5, 0, 1], [2, 3, 4]], dtype=torch.int32, device=device)
    o = attngen.mla_decode(q[..., :512], q[..., 512:], cache[..., :512], cache[..., 512:], lengths, pages)
    c = host(cache)
    expected, _ = ref.mla(host(q)[..., :512], host(q)[..., 512:], c[..., :512], c[..., 512:], lengths.tolist(),
                          pages.tolist(), 1, 192 ** -0.5)
    assert ref.relative(host(o), expected) < 0.01


@pytest.mark.parametrize("device", DEVICES)
def test_eight_bits(device):
    q, k, v = (torch.randn(1, 128, 2, 64, device=device).to(torch.float8_e4m3fn) for _ in range(3))
    o = attngen.attn_fwd(q, k, v)
    assert o.dtype is torch.bfloat16
    assert ref.relative(host(o), ref.attention(host(q), host(k), host(v))[0]) < 0.05


def test_errors_are_those_of_the_library():
    q, k, v, g, beta = kda("cpu")
    with pytest.raises(ValueError, match=r"k has shape \[1, 50, 2, 64\]"):
        attngen.kda_prefill(q, k[:, :50], v, g, beta)
    with pytest.raises(ValueError, match="q has dtype float64"):
        attngen.kda_prefill(q.double(), k, v, g, beta)
    with pytest.raises(TypeError, match="k is None"):
        attngen.kda_prefill(q, None, v, g, beta)


@needs_gpu
def test_tensors_of_two_devices_are_refused():
    q, k, v, g, beta = kda("cpu")
    with pytest.raises(ValueError, match="k is on cuda:0 and q on cpu:0"):
        attngen.kda_prefill(q, k.cuda(), v, g, beta)


def test_gradients_are_refused_and_not_dropped():
    q, k, v, g, beta = kda("cpu")
    q.requires_grad_()
    with pytest.raises(RuntimeError, match="kda_prefill has no backward"):
        attngen.kda_prefill(q, k, v, g, beta)
    with torch.no_grad():
        attngen.kda_prefill(q, k, v, g, beta)


@pytest.mark.parametrize("device", DEVICES)
def test_compiled_graphs_are_whole_and_have_the_same_bits(device):
    q, k, v, g, beta = kda(device, B=2)
    state = torch.randn(2, 2, 64, 64, device=device)

    def step(q, k, v, g, beta, state):
        o, final = attngen.kda_prefill(q * 2, k, v, g, beta, output_final_state=True, use_qk_l2norm_in_kernel=True)
        one = attngen.kda_decode(q[:, :1], k[:, :1], v[:, :1], g[:, :1], beta[:, :1], state)
        return o + 1, final, one

    with torch.no_grad():
        eager_state, compiled_state = state.clone(), state.clone()
        expected = step(q, k, v, g, beta, eager_state)
        torch._dynamo.reset()
        backend = "aot_eager" if device == "cpu" else "inductor"
        found = torch.compile(step, fullgraph=True, backend=backend)(q, k, v, g, beta, compiled_state)
    for a, b in zip((*expected, eager_state), (*found, compiled_state)):
        assert torch.equal(a, b)


@pytest.mark.parametrize("first", ["attngen, torch", "torch, attngen"])
def test_a_call_may_be_compiled_before_any_other(first):
    import subprocess
    import sys

    code = (f"import {first}\ntorch.set_grad_enabled(False)\n"
            "q = torch.ones(1, 10, 2, 64).bfloat16(); g = -torch.rand(1, 10, 2, 64); b = torch.rand(1, 10, 2)\n"
            "f = lambda q, g, b: attngen.kda_prefill(q, q, q, g, b, use_qk_l2norm_in_kernel=True)[0] * 2\n"
            "print(torch.equal(torch.compile(f, fullgraph=True, backend='aot_eager')(q, g, b), f(q, g, b)))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "True", done.stderr


@pytest.mark.parametrize("name", ["la_decode", "kda_prefill"])
def test_operators_pass_torchs_own_checks(name):
    from attngen import _torch

    _torch.define_operators()
    q, k, v, g, beta = kda("cpu", T=5)
    if name == "la_decode":
        q, k, v = q[0], k[0], v[0]
        args = (0, 0, None, q, k, v, torch.empty_like(v), torch.rand(2), torch.randn(5, 2, 64, 64), None, None, False,
                False)
    else:
        args = (0, 0, None, q, k, v, g, beta, torch.empty_like(v), None, None, None, torch.empty(1, 2, 64, 64), None,
                None, None, None, None, 0, 0, True, False, False, 0)
    torch.library.opcheck(getattr(torch.ops.attngen, name).default, args)


@needs_gpu
def test_a_graph_of_attn_paged_serves_other_lengths():
    """Captured with one split of the keys, replayed with others, in a workspace of NaN."""
    batch, pages, page_size, H, G, D, most = 3, 700, 16, 8, 2, 128, 3200
    generator = torch.Generator("cuda").manual_seed(5)
    k, v = (torch.randn(pages, page_size, G, D, generator=generator, device="cuda").bfloat16() for _ in range(2))
    q = torch.randn(batch, H, D, generator=generator, device="cuda").bfloat16()
    table = torch.randperm(pages, generator=generator, device="cuda")[:batch * 200].int().view(batch, 200)
    lengths = torch.tensor([5, 17, 64], dtype=torch.int32, device="cuda")
    out, workspace = torch.empty_like(q), torch.full((32 << 20,), 255, dtype=torch.uint8, device="cuda")

    def call():
        attngen.attn_paged(q, k, v, lengths, table, max_kv_len=most, mean_kv_len=1000, out=out, workspace=workspace)

    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    for now in ([5, 17, 64], [3200, 0, 1], [1, 3200, 3199], [0, 0, 0], [777, 1500, 2049], [5, 17, 64]):
        lengths.copy_(torch.tensor(now, dtype=torch.int32))
        out.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        for b, n in enumerate(now):
            rows = [x[table[b].long()].reshape(-1, G, D)[:n].double().repeat_interleave(H // G, 1) for x in (k, v)]
            scores = torch.einsum("hd,jhd->hj", q[b].double(), rows[0]) * D ** -0.5
            expected = torch.einsum("hj,jhd->hd", scores.softmax(-1), rows[1]) if n else torch.zeros(H, D, device="cuda")
            error = (out[b].double() - expected).norm() / expected.norm().clamp(min=1e-9)
            assert error < 4e-3 if n else not out[b].any(), (now, b, error)


@needs_gpu
def test_cuda_graphs_capture_calls():
    q, k, v, g, beta = kda("cuda", T=300)

    def run():
        return attngen.kda_prefill(q, k, v, g, beta, output_final_state=True, use_qk_l2norm_in_kernel=True)

    expected = run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = run()
    for x in found:
        x.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(found, expected))


@needs_gpu
def test_calls_go_to_the_current_stream():
    q, k, v, g, beta = kda("cuda", T=64)
    side, late = torch.cuda.Stream(), torch.zeros_like(q)
    expected, _ = attngen.kda_prefill(q, k, v, g, beta)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        late.copy_(q)
        found, _ = attngen.kda_prefill(late, k, v, g, beta)
    side.synchronize()
    assert torch.equal(found, expected)


@needs_gpu
def test_any_thread_and_any_device():
    import threading

    devices, wrong = [f"cuda:{i}" for i in range(torch.cuda.device_count())], []

    def work(device):
        q, k, v, g, beta = kda(device, T=70)
        o, _ = attngen.kda_prefill(q, k, v, g, beta, use_qk_l2norm_in_kernel=True)
        expected, _ = ref.kda(ref.l2(host(q)), ref.l2(host(k)), host(v), host(g), host(beta))
        if ref.relative(host(o), expected) > 0.02:
            wrong.append(device)

    for _ in range(4):
        threads = [threading.Thread(target=work, args=(d,)) for d in devices * 4]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    work(devices[-1])  # while another device is current
    assert not wrong


@needs_gpu
def test_a_workspace_that_is_given_is_used_and_checked():
    q, k, v, g, beta = kda("cuda", T=300)
    size = attngen.select("kda_prefill", q, k, v, g, beta).workspace_bytes
    assert size > 0
    # Keys of length 1: with others the state grows beyond all numbers.
    expected, _ = attngen.kda_prefill(q, k, v, g, beta, use_qk_l2norm_in_kernel=True)
    assert torch.isfinite(expected).all()
    workspace = torch.empty(size, dtype=torch.uint8, device="cuda")
    assert torch.equal(attngen.kda_prefill(q, k, v, g, beta, use_qk_l2norm_in_kernel=True, workspace=workspace)[0], expected)
    with pytest.raises(ValueError, match=f"workspace has {size - 1} bytes; {size} are wanted"):
        attngen.kda_prefill(q, k, v, g, beta, workspace=workspace[1:])
    with pytest.raises(ValueError, match="workspace is on another device"):
        attngen.kda_prefill(q, k, v, g, beta, workspace=workspace.cpu())


@needs_gpu
def test_selection_is_for_the_tensors_device():
    q, k, v, g, beta = kda("cuda", T=300)
    plan = attngen.select("kda_prefill", q, k, v, g, beta)
    assert plan.launches and plan.variant.startswith("kda_")
    assert plan.variant in attngen.explain("kda_prefill", q, k, v, g, beta)


def test_numpy_before_torch_leaves_torch_usable():
    import subprocess
    import sys

    code = ("import numpy as np, attngen; x = np.ones((1, 1, 64), np.float16);"
            "s = np.zeros((1, 1, 64, 64), np.float32); attngen.la_decode(x, x, x, s, np.zeros(1, np.float32));"
            "import torch;"
            "x = torch.ones(1, 1, 64, dtype=torch.float16); s = torch.zeros(1, 1, 64, 64);"
            "attngen.la_decode(x, x, x, s, torch.zeros(1)); print(float(s.sum()))")
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert found.strip() == "4096.0"
