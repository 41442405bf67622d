#!/usr/bin/env python3
"""Times FLA's backward pass of KDA (flash-linear-attention) on the shape file of kda_bwd.

    python3 bench/peers/fla_kda_bwd.py > fla.tsv
    attngen bench cases --families kda_bwd --peer-file fla.tsv
    python3 bench/peers/fla_kda_bwd.py --train bench/results --commit ID > fla.tsv

chunk_kda from raw inputs: gate with a lower bound of -5, L2 norm inside, beta in fp32, initial state given, final state asked
for; gradients of all inputs. Rows `fla-graph` are device time: forward and backward captured in a CUDA graph, less the
forward captured alone, medians over replays through inputs of more than twice the L2; rows `fla-eager` are wall time of
back-to-back backward calls on kept forward passes. With `keep` FLA keeps its intermediates (disable_recompute).

--train DIR writes DIR/<class>/kda_train.csv besides: forward and backward together, attngen.kda (kda_prefill and kda_bwd) beside
FLA's chunk_kda in the same run, both captured in CUDA graphs. It needs the package attngen. Needs torch, triton, fla-core
and flash-linear-attention.
"""
import argparse
import os
import sys
import time
import traceback

import fla_compile
import fla_kda_prefill as forward_peer
from fla_la_decode import eager_ms

FAMILY, BOUND, DIM = "kda_bwd", forward_peer.BOUND, forward_peer.DIM
NORM_STEP = 2048 * 32  # rows
# Kernels are compiled for each number of heads, which takes 16 cores 30 s for one: these have four of them.
CASES = ("B1-T8192-H64,B1-T4096-H64,B1-T8192-H64-keep,B1-T8192-H32,B1-T4096-H32,B1-T8192-H8,B1-T32768-H8,B2-T4096-HQK32-HV64,"
         "varlen-skewed-N20-T16384-H64")
INPUTS = ("q", "k", "v", "g", "beta", "A_log", "dt_bias", "initial_state")


def read_shapes():
    """The problems of the shape file, in order: (case name, keep, batch, seq_len, num_tokens, qk heads, v heads)."""
    with open(os.path.join(forward_peer.HERE, "..", "shapes", FAMILY + ".txt")) as lines:
        for line in lines:
            words = dict(w.split("=", 1) for w in line.split("#")[0].replace(",", " ").split())
            if not words:
                continue
            numbers = (("batch", 1), ("seq_len", 1024), ("num_tokens", 0), ("num_qk_heads", 64))
            batch, length, tokens, heads = (int(words.pop(n, p)) for n, p in numbers)
            shape = (batch, length, tokens, heads, int(words.pop("num_v_heads", heads)))
            keep = int(words.pop("keep", 0))
            if not words:  # others have no name here
                name = forward_peer.case_name(forward_peer.FORWARD, *shape)
                yield (name + ("-keep" if keep else ""), keep) + shape


class Problem(forward_peer.Problem):
    """A case's inputs that require gradients, and training steps on them."""

    def __init__(self, torch, shape, keep, sets=None):
        super().__init__(torch, shape)
        self.keep, self.sets = bool(keep), self.sets[:sets]
        self.cu32 = None if self.cu is None else self.cu.int()
        for x in self.sets:
            for name in INPUTS:
                x[name].requires_grad_()
            x["d_o"] = torch.randn_like(x["v"])
            x["d_final"] = torch.randn_like(x["initial_state"])

    def fla_forward(self, x):
        from fla.ops.kda import chunk_kda

        return chunk_kda(**{n: x[n] for n in INPUTS}, scale=self.scale, output_final_state=True,
                         use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, safe_gate=True, lower_bound=BOUND,
                         cu_seqlens=self.cu, disable_recompute=self.keep)

    def our_forward(self, x):
        import attngen

        return attngen.kda(**{n: x[n] for n in INPUTS}, scale=self.scale, output_final_state=True,
                           use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, lower_bound=BOUND, cu_seqlens=self.cu32,
                           max_seqlen=self.first, keep_states=self.keep)

    def backward(self, x, outputs, keep=False):
        return self.torch.autograd.grad(outputs, [x[n] for n in INPUTS], (x["d_o"], x["d_final"]), retain_graph=keep)

    def step(self, x, forward):
        return self.backward(x, forward(x))


def times(torch, problem, forward, replays):
    """(forward and backward, forward alone) in ms, by graph replay."""
    pair = forward_peer.device_time(torch, lambda x: problem.step(x, forward), problem.sets, replays)
    return pair, forward_peer.device_time(torch, forward, problem.sets, replays)


def measure(torch, problem, replays):
    """FLA's times: backward by graph replay, back-to-back backward calls; both passes and the forward by graph replay."""
    pair, alone = times(torch, problem, problem.fla_forward, replays)
    kept = [(x, problem.fla_forward(x)) for x in problem.sets[:2]]
    calls = [lambda x=x, o=o: problem.backward(x, o, keep=True) for x, o in kept]
    eager = eager_ms(torch, calls, max(10, min(50, int(20 / pair))), 5)
    return pair - alone, eager, pair, alone


def relative(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def peak_mib(torch, problem, forward):
    """What forward and backward allocate at most, gradients and outputs included."""
    x = problem.sets[0]
    problem.step(x, forward)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    problem.step(x, forward)
    return (torch.cuda.max_memory_allocated() - before) / 2**20


class Train:
    """The file of --train: both passes of both, in one run."""

    METHOD = ("ms and peer_ms: median over graph replays of forward and backward together, from raw inputs (bf16, gate with lower "
              "bound and L2 norm inside, beta in fp32, initial state given, final state asked for) to gradients of all inputs, "
              "through inputs of more than twice the L2; ours is attngen.kda, which launches kda_prefill and kda_bwd; gbps: bytes "
              "of both passes' inputs and outputs, by ms; err: relative distance of our d_v and d_initial_state from the peer's, "
              "the greater")

    def __init__(self, torch, options):
        import attngen
        import fla
        import triton

        about = torch.cuda.get_device_properties(options.device)
        name = f"sm{about.major}{about.minor}_{about.multi_processor_count}sm"
        path = os.path.join(options.train, name, "kda_train.csv")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self.out, self.replays = open(path, "w"), options.replays
        self.write(f"# gpu: {about.name} ({name})\n# torch {torch.__version__}, triton {triton.__version__}, attngen "
                   f"{attngen.__version__}\n# commit: {options.commit}\n# date: {time.strftime('%Y-%m-%d')}\n"
                   f"# command: bench/peers/fla_kda_bwd.py {' '.join(sys.argv[1:])}\n# method: {self.METHOD}\n"
                   f"# peer: fla-graph: FLA {fla.__version__}'s chunk_kda in the same process, with its own kernels, as a graph, too\n"
                   "case,variant,ms,gbps,tflops,peer,peer_ms,speedup,err,peer_err\n")

    def write(self, text):
        self.out.write(text)
        self.out.flush()

    def measure(self, torch, name, problem, theirs):
        ours, alone = times(torch, problem, problem.our_forward, self.replays)
        x = problem.sets[0]
        pairs = zip(problem.step(x, problem.our_forward), problem.step(x, problem.fla_forward))
        err = max(relative(a, b) for i, (a, b) in enumerate(pairs) if INPUTS[i] in ("v", "initial_state"))
        # Inputs three times, twice as such and once as gradients; o, its gradient, and the final state likewise.
        moved = sum(3 * x[n].nbytes for n in INPUTS) + 2 * x["d_o"].nbytes + 2 * x["d_final"].nbytes
        self.write(f"{name},kda_prefill+kda_bwd,{ours:.6f},{moved / ours / 1e6:.1f},,fla-graph,{theirs:.6f},{theirs / ours:.4f},"
                   f"{err:.3e},\n")
        mib = [peak_mib(torch, problem, forward) for forward in (problem.our_forward, problem.fla_forward)]
        self.write(f"# memory: {name}: both passes allocate {mib[0]:.0f} MiB, FLA's {mib[1]:.0f}, outputs and gradients included\n")
        print(f"{name:44s} both passes {ours * 1e3:9.2f} us, forward {alone * 1e3:9.2f}; fla {theirs * 1e3:9.2f} us, "
              f"{theirs / ours:.3f} times as long; err {err:.1e}", file=sys.stderr)


# ---- what is compiled before --------------------------------------------------------------------------------------------


def key_of(keep, batch, length, tokens, heads, v_heads):
    """What FLA's kernels are specialized by; the norm's by a number of rows, in steps."""
    rows = (tokens or batch * length) * heads
    return (keep, batch if not tokens else 2, tokens > 0, heads, v_heads, -(-rows // NORM_STEP) * NORM_STEP)


def warm(torch, key):
    from fla.modules.norm.l2norm import l2norm_bwd, l2norm_fwd

    keep, batch, packed, heads, v_heads, rows = key
    problem = Problem(torch, (batch, 512, 1024 if packed else 0, heads, v_heads), keep, sets=1)
    problem.step(problem.sets[0], problem.fla_forward)
    x = torch.randn(rows, DIM, device="cuda", dtype=torch.bfloat16)
    y, rstd = l2norm_fwd(x)
    l2norm_bwd(y, rstd, x.float())


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", default=CASES, help="those that one of these words names, or whose name contains it, in their "
                        "order; '' has all (default: nine cases)")
    parser.add_argument("--replays", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes that compile; 0: none")
    parser.add_argument("--compile-seconds", type=float, default=1200, help="compile no longer than this")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no case later than this")
    parser.add_argument("--cache", metavar="FILE", help="Triton's cache as it was packed: restored where the file is there, and "
                        "packed after each case")
    parser.add_argument("--device", type=int, default=0, help="CUDA device (default 0)")
    parser.add_argument("--train", metavar="DIR", help="a folder of results: write forward and backward together, beside "
                        "attngen.kda")
    parser.add_argument("--commit", default="-", help="of the source, for the header of --train")
    parser.add_argument("--list", action="store_true", help="print the case names and measure nothing")
    return parser.parse_args()


def chosen(words):
    cases, found = list(read_shapes()), []
    for word in words.split(","):
        found += [case for case in cases if case[0] == word] or [case for case in cases if word in case[0]]
    return list(dict.fromkeys(found))


def run_case(torch, case, options, train):
    name, keep, *shape = case
    problem = Problem(torch, shape, keep)
    backward, eager, pair, alone = measure(torch, problem, options.replays)
    print(f"fla-graph\t{name}\t{backward:.6f}\t-\nfla-eager\t{name}\t{eager:.6f}\t-\n"
          f"# {name}: both passes {pair:.6f} ms, the forward {alone:.6f} ms", flush=True)
    print(f"{name:44s} fla {backward * 1e3:9.2f} us, eager {eager * 1e3:9.2f}", file=sys.stderr)
    if train:
        train.measure(torch, name, problem, pair)


def main():
    options, start = arguments(), time.time()
    cases = chosen(options.cases)
    if options.list:
        print("\n".join(case[0] for case in cases))
        return
    if options.cache and os.path.exists(options.cache) and not fla_compile.is_worker():
        fla_compile.restore(options.cache)
    keys = list(dict.fromkeys(key_of(*case[1:]) for case in cases))
    ready = fla_compile.warmed()
    if options.jobs and not fla_compile.is_worker():
        ready |= fla_compile.compile_all([key for key in keys if key not in ready], options.jobs, options.compile_seconds)
        print(f"compiled in {time.time() - start:.0f} s: {len(ready & set(keys))} of {len(keys)} kinds", file=sys.stderr)
    import torch
    import triton
    import fla
    from triton.testing import do_bench

    torch.cuda.set_device(options.device)
    torch.manual_seed(0)
    if fla_compile.is_worker():
        fla_compile.work(torch, [key for key in keys if key not in ready], warm)
        return
    fla_compile.keep_used()
    forward_peer.quick_tuning(lambda call, quantiles=None, **_: do_bench(call, warmup=3, rep=15, quantiles=quantiles))
    train = Train(torch, options) if options.train else None
    print(f"# fla {fla.__version__}, triton {triton.__version__}, torch {torch.__version__}, {torch.cuda.get_device_name()}")
    print("# device time of CUDA graphs (fla-graph), wall time of back-to-back calls (fla-eager); see fla_kda_bwd.py")
    print(f"peer\tcase\tms\terr\n# family: {FAMILY}")
    for peer in ("fla-graph", "fla-eager"):
        print(f"# note: {peer}: FLA {fla.__version__} on the same machine, the backward pass from raw inputs", flush=True)
    measured = []
    for case in sorted(cases, key=lambda case: key_of(*case[1:]) not in ready):
        if time.time() - start > options.seconds:
            break
        try:
            run_case(torch, case, options, train)
            measured.append(key_of(*case[1:]))
        except Exception:  # one case's failure is not the others'
            traceback.print_exc()
        torch.cuda.empty_cache()
        if options.cache and measured:
            fla_compile.pack(options.cache, measured)


if __name__ == "__main__":
    main()
