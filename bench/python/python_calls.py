#!/usr/bin/env python3
"""What a torch user sees: wall time of calls from Python, attngen's beside FLA's, in turns.

    python3 bench/python/python_calls.py [--cases SUBSTRING] [--rounds N] [--compilers N] --results DIR --commit ID

Writes <results>/<class>/python.csv with the columns of bench/results. A case is a call that allocates its outputs, on
inputs on the GPU, outside of any graph: `kda_prefill-T512-H12` (one sequence), `kda_decode-N4-H32` and `la_decode-N16-H64` (one
token a row; attngen updates states in place, FLA returns new ones). A round times both sides one behind the other,
each by calls back to back with one synchronization at the end; ms and peer_ms are medians over rounds. A case ends
after 5 rounds whose medians hold within 1 % (the quartiles of both sides), else after --rounds. --compilers N lets N
processes fill Triton's cache first, which one after the other takes two to three minutes; what is tuned is tuned
afterwards, by the process that measures, alone on the GPU. The peer
`fla-eager` is FLA's public function for the same operator and the same options, with its own kernels: attngen's backend is
not registered. The header's `host` line is the median time of a call on an empty batch, which does all that a call does
but gen_launch(). Needs the packages attngen, torch, triton and flash-linear-attention.
"""
import argparse
import pathlib
import statistics
import subprocess
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


def settled(samples):
    """Do the medians of both sides hold within 1 %, by the standard error that the quartiles tell?"""
    if len(samples) < 5:
        return False
    for side in zip(*samples):
        low, middle, high = statistics.quantiles(side, n=4)
        if 0.93 * (high - low) > 0.01 * middle * len(side) ** 0.5:
            return False
    return True


def measure(torch, case, rounds, budget_ms):
    family, first, heads = numbers(case)
    torch.manual_seed(first + heads)
    ours, theirs = MAKE[family](torch, first, heads)
    apart = difference(torch, ours, theirs)
    for call in (ours, theirs):  # compiles and tunes
        for _ in range(20):
            call()
    count = [max(10, min(2000, int(budget_ms / wall_ms(torch, call, 10)))) for call in (ours, theirs)]
    samples = []
    while len(samples) < rounds and not settled(samples):
        samples.append((wall_ms(torch, ours, count[0]), wall_ms(torch, theirs, count[1])))
    return statistics.median(s[0] for s in samples), statistics.median(s[1] for s in samples), apart


def compile_share(cases, share, shares):
    """Compiles every shares-th of the configurations that Triton tries for FLA's kernels, and times none."""
    import torch
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.errors import OutOfResources, PTXASError

    def run(self, *args, **kwargs):
        self.nargs = dict(zip(self.arg_names, args))
        for config in self.prune_configs(kwargs)[share::shares]:
            try:
                self.fn.run(*args, **kwargs, **config.all_kwargs())
            except (OutOfResources, PTXASError):
                pass  # which leaves this configuration out when it is tuned, too

    Autotuner.run = run
    with torch.no_grad():
        for case in cases:
            family, first, heads = numbers(case)
            if first in (1, 4, 64, 1024):  # what the others compile, too
                MAKE[family](torch, first, heads)[1]()
    torch.cuda.synchronize()


def compile_all(options, shares):
    """One process a share; what one of them cannot compile, the measurement compiles or leaves out."""
    command = [sys.executable, __file__, "--cases", options.cases, "--share"]
    start = time.perf_counter()
    children = [subprocess.Popen([*command, f"{i}/{shares}"], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True) for i in range(shares)]
    for i, child in enumerate(children):
        message = child.communicate()[1]
        if child.returncode:
            print(f"compiling share {i}: {message.strip().splitlines()[-1:]}", file=sys.stderr)
    print(f"FLA's kernels compiled in {time.perf_counter() - start:.1f} s", file=sys.stderr)


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
    parser.add_argument("--quick", action="store_true", help="3 rounds of 20 ms a side instead of 5 to 11 of 60")
    parser.add_argument("--results", default="bench/results", help="the folder of results")
    parser.add_argument("--commit", default="-", help="of the source, for the header")
    parser.add_argument("--compilers", type=int, default=0, help="processes that fill Triton's cache first")
    parser.add_argument("--share", help="compile this share, i/n, and measure nothing; of --compilers")
    parser.add_argument("--list", action="store_true", help="print the case names and measure nothing")
    options = parser.parse_args()
    cases = [name for name in names() if options.cases in name]
    if options.list:
        print("\n".join(cases))
        return
    if options.share:
        compile_share(cases, *map(int, options.share.split("/")))
        return
    if options.compilers:
        compile_all(options, options.compilers)
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
              f"# date: {time.strftime('%Y-%m-%d')}\n# command: bench/python/python_calls.py {' '.join(sys.argv[1:])}\n"
              f"# host: {host:.2f} us, median, of a call on an empty batch: all but gen_launch()\n"
              f"# method: wall time of back-to-back calls outside of graphs, ours and the peer's in turns, medians over "
              f"5 to {rounds} rounds of {budget} ms a side; err: our output's relative distance from the peer's\n"
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
