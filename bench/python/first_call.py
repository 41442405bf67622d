#!/usr/bin/env python3
"""How long a fresh process takes from its start to its first finished kernel, beside one that has torch alone.

    python3 bench/python/first_call.py [--family kda_prefill] [--runs N] [--device cuda]

Starts N processes of each kind in turns. Both import torch, make the same inputs and wait for a kernel of torch's on
them; ours goes on to `import attngen`, a call and the end of its kernels. Prints medians in ms: of both, of the
difference, and of the parts that ours is made of. The aim on a GPU is 50 ms of difference.
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

CHILD = '''
import os, sys, time
marks = [("start of Python", time.monotonic_ns())]
mark = lambda name: marks.append((name, time.monotonic_ns()))
import torch
where, family, ours = sys.argv[1], sys.argv[2], sys.argv[3] == "ours"
wait = torch.cuda.synchronize if where == "cuda" else lambda: None
def bf16(*shape): return torch.ones(*shape, device=where, dtype=torch.bfloat16)
if family == "la_decode":
    x, state, decay = bf16(4, 64, 128), torch.zeros(4, 64, 128, 128, device=where), torch.ones(64, device=where)
    call = lambda a: a.la_decode(x, x, x, state, decay)
else:
    x, beta = bf16(1, 256, 4, 128), bf16(1, 256, 4)
    g = -x
    call = lambda a: a.kda_prefill(x, x, x, g, beta, use_qk_l2norm_in_kernel=True)
(x + x).sum()
wait()
mark("torch")
if ours:
    with torch.no_grad():
        import attngen
        mark("import attngen")
        from attngen import _ffi, _arrays
        _ffi.function("open")
        mark("libraries")
        _ffi.function("open")("")
        mark("product")
        _arrays.kind_of(x)
        mark("functions for torch")
        call(attngen)
        mark("the call")
        wait()
        mark("its kernels")
        call(attngen); wait()
        mark("another call")
start = int(os.environ["STARTED"])
for name, t in marks:
    print(f"{name}\\t{(t - start) / 1e6}")
    start = t
'''


def child(where, family, kind):
    environment = dict(os.environ, STARTED=str(time.monotonic_ns()))
    done = subprocess.run([sys.executable, "-c", CHILD, where, family, kind], env=environment, check=True, text=True,
                          stdout=subprocess.PIPE)
    return [(name, float(ms)) for name, ms in (line.split("\t") for line in done.stdout.splitlines())]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--family", default="kda_prefill", choices=("kda_prefill", "la_decode"))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    options = parser.parse_args()
    kinds = {"torch": [], "ours": []}
    child(options.device, options.family, "ours")  # files into the system's cache
    for _ in range(options.runs):
        for kind, runs in kinds.items():
            runs.append(child(options.device, options.family, kind))
    alone = [sum(ms for _, ms in run) for run in kinds["torch"]]
    ours = [sum(ms for _, ms in run[:-1]) for run in kinds["ours"]]  # without the other call
    beyond = [sum(ms for _, ms in run[2:-1]) for run in kinds["ours"]]
    print(f"{options.family} on {options.device}, {options.runs} runs of each, ms: torch alone "
          f"{statistics.median(alone):.1f}, ours {statistics.median(ours):.1f}; beyond torch's first kernel "
          f"{statistics.median(beyond):.1f} ({min(beyond):.1f} to {max(beyond):.1f})")
    for i, (name, _) in enumerate(kinds["ours"][0]):
        print(f"    {name:20s} {statistics.median(run[i][1] for run in kinds['ours']):9.2f}")


if __name__ == "__main__":
    main()
