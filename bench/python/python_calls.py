#!/usr/bin/env python3
"""What a torch user sees: wall time of calls from Python, attngen's beside FLA's, in turns.

    python3 bench/python/python_calls.py [--cases SUBSTRING] [--rounds N] [--quick] --results bench/results --commit ID

Writes <results>/<class>/python.csv with the columns of bench/results. A case is a call that allocates its outputs, on
inputs on the GPU, outside of any graph: `kda_prefill-T512-H12` (one sequence), `kda_decode-N4-H32` and `la_decode-N16-H64` (one
token a row; attngen updates states in place, FLA returns new ones). A round times both sides one behind the other,
each by calls back to back with one synchronization at the end; ms and peer_ms are medians over rounds. The peer
`fla-eager` is FLA's public function for the same operator and the same options, with its own kernels: attngen's backend is
not registered. The header's `host` line is the median time of a call on an empty batch, which does all that a call does
but gen_launch(). Needs the packages attngen, torch, triton and flash-linear-attention.
"""
import argparse
import pathlib
import statistics
import sys
import time

PREFILL = [(t, h) for h in (12, 32) for t in (64, 128, 256, 512, 1024, 2048, 4096, 8192)]
DECODE = (1, 2, 4, 8, 16, 32, 64)


def names():
    return ([f"kda_prefill-T{t}-H{h}" for t, h in PREFILL] + [f"kda_decode-N{n}-H32" for n in DECODE] +
            [f"la_decode-N{n}-H64" for n in DECODE])


def numbers(case):
    family, first, heads = case.split("-")
    return family, int(first[1:]), int(heads[1:])


def prefill(torch, T, H):
    import attngen
    from fla.ops.kda import chunk_kda

    q, k, v, g = (torch.randn(1, T, H, 128, device="cuda").bfloat16() for _ in range(4))
    beta = torch.randn(1, T, H, device="cuda").bfloat16()
    options = dict(A_log=0.5 * torch.randn(H, device="cuda"), dt_bias=torch.randn(H * 128, device="cuda"),
                   output_final_state=True, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
                   use_beta_sigmoid_in_kernel=True, safe_gate=True, lower_bound=-5.0)
    return (lambda: attngen.kda_prefill(q, k, v, g, beta, **options)[0],
            lambda: chunk_kda(q, k, v, g, beta, **options)[0])


def decode(torch, N, H):
    import attngen
    from fla.ops.kda import fused_recurrent_kda

    q, k, v, g = (torch.randn(N, 1, H, 128, device="cuda").bfloat16() for _ in range(4))
    beta, A_log = torch.randn(N, 1, H, device="cuda").bfloat16(), 0.5 * torch.randn(H, device="cuda")
    dt_bias, state = torch.randn(H * 128, device="cuda"), 0.3 * torch.randn(N, H, 128, 128, device="cuda")
    ours = state.clone()
    options = dict(A_log=A_log, dt_bias=dt_bias, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
                   use_beta_sigmoid_in_kernel=True)
    return (lambda: attngen.kda_decode(q, k, v, g, beta, ours, **options),
            lambda: fused_recurrent_kda(q, k, v, g, beta, initial_state=state, output_final_state=True, **options)[0])


def lightning(torch, N, H):
    import attngen
    from fla.ops.simple_gla import fused_recurrent_simple_gla

    q, k, v = (torch.randn(N, 1, H, 128, device="cuda").bfloat16() for _ in range(3))
    decay = 4.0 * torch.arange(H, device="cuda", dtype=torch.float32) / H
    state = 0.1 * torch.randn(N, H, 128, 128, device="cuda")
    ours, gamma = state.clone(), -decay
    return (lambda: attngen.la_decode(q, k, v, ours, decay),
            lambda: fused_recurrent_simple_gla(q, k, v, g_gamma=gamma, initial_state=state, output_final_state=True)[0])


MAKE = {"kda_prefill": prefill, "kda_decode": decode, "la_decode": lightning}


def wall_ms(torch, call, count):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3 / count


def difference(torch, ours, theirs):
    """Relative Frobenius distance of the two sides' first outputs."""
    a, b = ours().double(), theirs().double()
    return ((a - b).norm() / b.norm()).item()


def measure(torch, case, rounds, budget_ms):
    family, first, heads = numbers(case)
    torch.manual_seed(first + heads)
    ours, theirs = MAKE[family](torch, first, heads)
    apart = difference(torch, ours, theirs)
    for call in (ours, theirs):  # compiles and tunes
        for _ in range(20):
            call()
    count = [max(10, min(2000, int(budget_ms / wall_ms(torch, call, 10)))) for call in (ours, theirs)]
    samples = [(wall_ms(torch, ours, count[0]), wall_ms(torch, theirs, count[1])) for _ in range(rounds)]
    return statistics.median(s[0] for s in samples), statistics.median(s[1] for s in samples), apart


def host_us(torch):
    """Of calls on an empty batch: the time that is spent outside of gen_launch()."""
    import attngen

    q, state = torch.empty(0, 4, 128, device="cuda", dtype=torch.bfloat16), torch.zeros(1, 4, 128, 128, device="cuda")
    decay, samples = torch.zeros(4, device="cuda"), []
    for _ in range(5000):
        start = time.perf_counter_ns()
        attngen.la_decode(q, q, q, state, decay)
        samples.append((time.perf_counter_ns() - start) / 1e3)
    return statistics.median(samples[1000:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", default="", help="only cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--quick", action="store_true", help="3 rounds of 20 ms a side instead of 11 of 60")
    parser.add_argument("--results", default="bench/results", help="the folder of results")
    parser.add_argument("--commit", default="-", help="of the source, for the header")
    parser.add_argument("--list", action="store_true", help="print the case names and measure nothing")
    options = parser.parse_args()
    cases = [name for name in names() if options.cases in name]
    if options.list:
        print("\n".join(cases))
        return
    import attngen
    import fla
    import torch
    import triton

    rounds, budget = (3, 20) if options.quick else (options.rounds, 60)
    about = torch.cuda.get_device_properties(0)
    path = pathlib.Path(options.results, f"sm{about.major}{about.minor}_{about.multi_processor_count}sm", "python.csv")
    path.parent.mkdir(parents=True, exist_ok=True)
    with torch.no_grad(), open(path, "w") as out:
        host = host_us(torch)
        print(f"# gpu: {about.name}\n# torch {torch.__version__}, triton {triton.__version__}, Python "
              f"{sys.version.split()[0]}, attngen {attngen.__version__}\n# commit: {options.commit}\n"
              f"# date: {time.strftime('%Y-%m-%d')}\n# command: python3 {' '.join(sys.argv)}\n"
              f"# host: {host:.2f} us, median, of a call on an empty batch: all but gen_launch()\n"
              f"# method: wall time of back-to-back calls outside of graphs, ours and the peer's in turns, medians over "
              f"{rounds} rounds of {budget} ms a side; err: our output's relative distance from the peer's\n"
              f"# peer: fla-eager: FLA {fla.__version__} in the same process, its public function with its own kernels\n"
              "case,variant,ms,gbps,tflops,peer,peer_ms,speedup,err,peer_err", file=out)
        for case in cases:
            ms, peer_ms, apart = measure(torch, case, rounds, budget)
            print(f"{case},,{ms:.6f},,,fla-eager,{peer_ms:.6f},{peer_ms / ms:.4f},{apart:.3e},", file=out, flush=True)
            print(f"{case:24s} {ms * 1e3:9.2f} us, FLA {peer_ms * 1e3:9.2f} us, {peer_ms / ms:6.2f}x, apart {apart:.1e}",
                  file=sys.stderr)
    print(f"host time of a call above gen_launch(): {host:.2f} us; {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
