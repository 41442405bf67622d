#!/usr/bin/env python3
"""Times FLA's Triton kernel (flash-linear-attention) on kda_decode's shape file.

    python3 bench/peers/fla_kda_decode.py > fla.tsv
    attngen bench cases --families kda_decode --peer-file fla.tsv

Rows `fla-graph` are device time: a CUDA graph of calls that walk through state pools of more than twice the L2, median over
replays, of fused_recurrent_kda_fwd as servers call it: state slots named by a table and updated in place, the output's memory
given, gate, beta and L2 norm in the kernel; several tokens a row with a slot each and accepted counts. Rows `fla-eager` are
wall time of back-to-back calls of the same function, which then allocates and clears its output, synchronized at the end.
The state lies as the case has it (state_v_first for vk). Autotuning and compilation happen before anything is timed. Needs
torch, triton, fla-core and flash-linear-attention.
"""
import argparse
import os
import sys

from fla_la_decode import eager_ms, graph_ms

HERE = os.path.dirname(os.path.abspath(__file__))
PRESETS = {"batch": "1", "num_tokens": "1", "num_qk_heads": "32", "head_dim": "128", "dtype": "bf16", "layout": "vk"}


def read_shapes(path):
    """The problems of a shape file, in order, as dictionaries; those with controls, states of 16 bits or a ring are left out."""
    with open(path) as lines:
        for line in lines:
            words = line.split("#")[0].replace(",", " ").split()
            if words and not any(w.startswith("@") for w in words):
                shape = dict(PRESETS, **dict(w.split("=", 1) for w in words))
                if not shape.keys().isdisjoint(("state_dtype", "ring_len")):
                    continue
                for name, of in (("num_v_heads", "num_qk_heads"), ("gate_dtype", "dtype"), ("beta_dtype", "gate_dtype")):
                    shape.setdefault(name, shape[of])
                yield shape


def case_name(s):
    """As the runtime's family names it."""
    name = f"N{s['batch']}-H{s['num_qk_heads']}-HV{s['num_v_heads']}-{s['layout']}"
    name += f"-T{s['num_tokens']}" if s["num_tokens"] != "1" else ""
    name += f"-D{s['head_dim']}" if s["head_dim"] != "128" else ""
    return name + ("-fp16" if s["dtype"] == "fp16" else "") + "".join(
        f"-{letter}32" for letter, field in (("g", "gate_dtype"), ("b", "beta_dtype")) if s[field] == "fp32")


def reference_error(torch, x, state, scale, v_first, o):
    """Relative Frobenius error of o against float64, a few rows at a time; the rows' first states are given."""
    difference = norm = 0.0
    group = x["v"].shape[2] // x["q"].shape[2]
    for first in range(0, x["q"].shape[0], 4):
        part = slice(first, first + 4)
        q, k = (torch.nn.functional.normalize(x[n][part].double(), dim=-1, eps=0).repeat_interleave(group, 2) for n in "qk")
        gate = x["g"][part].double() + x["dt_bias"].double().view(x["v"].shape[2], -1)
        decay = (-x["A_log"].double().exp()[:, None] * torch.nn.functional.softplus(gate)).exp()
        v, beta = x["v"][part].double(), x["beta"][part].double().sigmoid()
        s = state[part].double()
        s = s.transpose(-1, -2) if v_first else s
        for t in range(q.shape[1]):
            s = s * decay[:, t, :, :, None]
            e = v[:, t] - (k[:, t, :, :, None] * s).sum(-2)
            s = s + beta[:, t, :, None, None] * k[:, t, :, :, None] * e[..., None, :]
            expected = scale * (q[:, t, :, :, None] * s).sum(-2)
            difference += (o[part, t].double() - expected).square().sum().item()
            norm += expected.square().sum().item()
    return (difference / norm) ** 0.5


def measure(torch, kernel, shape, replays):
    batch, tokens, heads, v_heads, dim = (
        int(shape[x]) for x in ("batch", "num_tokens", "num_qk_heads", "num_v_heads", "head_dim"))
    types = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
    v_first = shape["layout"] == "vk"
    l2 = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    state_bytes = batch * tokens * v_heads * dim * dim * 4
    sets = max(2, -(-int(2.2 * l2) // state_bytes))
    scale = dim**-0.5

    def tensor(dtype, *size):
        return torch.randn(batch, tokens, *size, device="cuda").to(types[shape[dtype]])

    def draw():
        return {
            "q": tensor("dtype", heads, dim),
            "k": tensor("dtype", heads, dim),
            "v": tensor("dtype", v_heads, dim),
            "g": 2 * tensor("gate_dtype", v_heads, dim),
            "beta": tensor("beta_dtype", v_heads),
            "A_log": 0.5 * torch.randn(v_heads, device="cuda"),
            "dt_bias": torch.randn(v_heads * dim, device="cuda"),
        }

    inputs = [draw() for _ in range(min(sets, 16))]
    pools = [torch.randn(batch * tokens, v_heads, dim, dim, device="cuda") * 0.3 for _ in range(sets)]
    slots = torch.arange(batch * tokens, device="cuda", dtype=torch.int32).view(batch, tokens)
    accepted = torch.ones(batch, device="cuda", dtype=torch.int32) if tokens > 1 else None
    outs = [torch.empty_like(x["v"]) for x in inputs]

    def call(i, out):
        return kernel(**inputs[i % len(inputs)], initial_state=pools[i], scale=scale, inplace_final_state=True,
                      state_v_first=v_first, ssm_state_indices=slots if tokens > 1 else slots.view(-1),
                      num_accepted_tokens=accepted, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
                      use_beta_sigmoid_in_kernel=True, out=outs[i % len(outs)] if out else None)

    with torch.no_grad():
        first = pools[0][::tokens].clone()
        o, _ = call(0, True)  # compiles
        torch.cuda.synchronize()
        err = reference_error(torch, inputs[0], first, scale, v_first, o)
        guess = (1 + tokens) / tokens * state_bytes / 4e9 + 0.005
        launches = -(-max(20, int(4 / guess)) // sets) * sets
        graph = graph_ms(torch, [lambda i=i: call(i, True) for i in range(sets)], launches, replays)
        count = max(20, min(400, int(40 / max(graph, 0.1))))
        eager = eager_ms(torch, [lambda i=i: call(i, False) for i in range(sets)], count, 7)
    return graph, eager, err


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shapes", default=os.path.join(HERE, "..", "shapes", "kda_decode.txt"))
    parser.add_argument("--cases", default="", help="only cases whose name contains this")
    parser.add_argument("--replays", type=int, default=11)
    parser.add_argument("--device", type=int, default=0, help="CUDA device (default 0)")
    parser.add_argument("--list", action="store_true", help="print the case names and measure nothing")
    options = parser.parse_args()
    shapes = [s for s in read_shapes(options.shapes) if options.cases in case_name(s)]
    if options.list:
        for s in shapes:
            print(case_name(s))
        return
    import torch
    import triton
    import fla
    from fla.ops.kda.fused_recurrent import fused_recurrent_kda_fwd

    torch.cuda.set_device(options.device)
    print(f"# fla {fla.__version__}, triton {triton.__version__}, torch {torch.__version__}, {torch.cuda.get_device_name()}")
    print("# device time of a CUDA graph (fla-graph), wall time of back-to-back calls (fla-eager); see fla_kda_decode.py")
    print("peer\tcase\tms\terr")
    for shape in shapes:
        graph, eager, err = measure(torch, fused_recurrent_kda_fwd, shape, options.replays)
        name = case_name(shape)
        print(f"fla-graph\t{name}\t{graph:.6f}\t{err:.3e}")
        print(f"fla-eager\t{name}\t{eager:.6f}\t{err:.3e}")
        print(f"{name:28s} graph {graph * 1e3:8.2f} us  eager {eager * 1e3:8.2f} us  err {err:.1e}", file=sys.stderr)
        sys.stdout.flush()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
