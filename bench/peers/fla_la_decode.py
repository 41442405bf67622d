#!/usr/bin/env python3
"""Times FLA's Triton kernel (flash-linear-attention) on la_decode's shape file.

    python3 bench/peers/fla_la_decode.py > fla.tsv
    attngen bench cases --peer-file fla.tsv

Rows `fla-graph` are device time: a CUDA graph of calls that walk through state buffers of more than twice the L2, median
over replays. They time fused_recurrent_fwd, the kernel and the sum over its parts of K, without the cast of the output
that the public operator adds as a third kernel. Rows `fla-eager` are what a caller sees of the public operator: wall time
of back-to-back calls, synchronized at the end. FLA gets its native [K, V] state for every case (the maths is the same) and writes the new state to a buffer of its own, as its
interface has it. Autotuning and compilation happen before anything is timed. Cases FLA's interface does not cover (grouped
value heads) are left out. Needs torch, triton, fla-core and flash-linear-attention.
"""
import argparse
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PRESETS = {"batch": "1", "num_qk_heads": "64", "head_dim": "128", "dtype": "bf16", "layout": "vk"}


def read_shapes(path):
    """The problems of a shape file, in order, as dictionaries."""
    with open(path) as lines:
        for line in lines:
            words = line.split("#")[0].replace(",", " ").split()
            if words:
                shape = dict(PRESETS, **dict(w.split("=", 1) for w in words if not w.startswith("@")))
                shape.setdefault("num_v_heads", shape["num_qk_heads"])
                yield shape


def case_name(s):
    """As the runtime's family names it."""
    group = "" if s["num_v_heads"] == s["num_qk_heads"] else f"-HV{s['num_v_heads']}"
    d, tail = s["head_dim"], "-fp16" if s["dtype"] == "fp16" else ""
    return f"B{s['batch']}-H{s['num_qk_heads']}{group}-K{d}-V{d}-{s['layout']}{tail}"


def reference_error(torch, q, k, v, g_gamma, state, scale, o):
    """Relative Frobenius error of o against float64, a few rows at a time."""
    difference = norm = 0.0
    for rows in range(0, q.shape[0], 8):
        part = slice(rows, rows + 8)
        qd, kd, vd = (x[part, 0].double() for x in (q, k, v))
        h = state[part].double() * g_gamma.double().exp()[None, :, None, None]
        h += kd[..., :, None] * vd[..., None, :]
        expected = scale * torch.einsum("bhk,bhkv->bhv", qd, h)
        difference += (o[part, 0].double() - expected).square().sum().item()
        norm += expected.square().sum().item()
    return (difference / norm) ** 0.5


def graph_ms(torch, calls, launches, replays, rest_ms=0):
    """Median device time of a call, in ms: `launches` calls in turn captured into one graph.

    With rest_ms each replay comes after so long a rest and an untimed one, as `attngen bench cases --rest` does it.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls[:3]:
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(launches):
            calls[i % len(calls)]()
    graph.replay()
    torch.cuda.synchronize()
    samples = []
    for _ in range(replays):
        if rest_ms:
            torch.cuda.synchronize()
            time.sleep(rest_ms / 1e3)
            graph.replay()
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        samples.append(start.elapsed_time(stop) / launches)
    return statistics.median(samples)


def eager_ms(torch, calls, count, tries):
    """Median wall time of a call, in ms."""
    samples = []
    for _ in range(tries):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for i in range(count):
            calls[i % len(calls)]()
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - start) * 1e3 / count)
    return statistics.median(samples)


def measure(torch, attention, kernel, shape, replays):
    batch, heads, dim = (int(shape[x]) for x in ("batch", "num_qk_heads", "head_dim"))
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[shape["dtype"]]
    l2 = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    state_bytes = batch * heads * dim * dim * 4
    sets = max(2, -(-int(2.2 * l2) // state_bytes))
    scale = dim**-0.5
    g_gamma = -4.0 * torch.arange(heads, device="cuda", dtype=torch.float32) / heads

    def tensor():
        return torch.randn(batch, 1, heads, dim, device="cuda", dtype=dtype)

    inputs = [(tensor(), tensor(), tensor()) for _ in range(min(sets, 16))]
    states = [torch.randn(batch, heads, dim, dim, device="cuda") * 0.1 for _ in range(sets)]

    def bind(function):
        def call(i):
            q, k, v = inputs[i % len(inputs)]
            return function(q, k, v, g_gamma=g_gamma, scale=scale, initial_state=states[i], output_final_state=True)

        return [lambda i=i: call(i) for i in range(sets)]

    calls, kernels = bind(attention), bind(kernel)
    with torch.no_grad():
        o, _ = calls[0]()  # compiles and tunes
        torch.cuda.synchronize()
        err = reference_error(torch, *inputs[0], g_gamma, states[0], scale, o)
        guess = 2 * state_bytes / 4e9 + 0.005
        launches = -(-max(20, int(4 / guess)) // sets) * sets
        graph = graph_ms(torch, kernels, launches, replays)
        eager = eager_ms(torch, calls, max(20, min(400, int(40 / max(graph, 0.1)))), 7)
    return graph, eager, err


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shapes", default=os.path.join(HERE, "..", "shapes", "la_decode.txt"))
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
    from fla.ops.common.fused_recurrent import fused_recurrent_fwd
    from fla.ops.simple_gla import fused_recurrent_simple_gla

    torch.cuda.set_device(options.device)
    print(f"# fla {fla.__version__}, triton {triton.__version__}, torch {torch.__version__}, {torch.cuda.get_device_name()}")
    print("peer\tcase\tms\terr")
    torch.manual_seed(0)
    measured = {}  # FLA's time does not depend on our layout of the state
    printed = set()
    for s in shapes:
        if s["num_v_heads"] != s["num_qk_heads"] or case_name(s) in printed:
            continue
        printed.add(case_name(s))
        key = tuple(s[x] for x in ("batch", "num_qk_heads", "head_dim", "dtype"))
        if key not in measured:
            try:
                measured[key] = measure(
                    torch, fused_recurrent_simple_gla, fused_recurrent_fwd, s, options.replays
                )
            except torch.OutOfMemoryError as error:
                print(f"# {case_name(s)}: {error}".splitlines()[0], file=sys.stderr)
                continue
            finally:
                torch.cuda.empty_cache()
        graph, eager, err = measured[key]
        print(f"fla-graph\t{case_name(s)}\t{graph:.6f}\t{err:.3e}")
        print(f"fla-eager\t{case_name(s)}\t{eager:.6f}\t{err:.3e}", flush=True)


if __name__ == "__main__":
    main()
