#!/usr/bin/env python3
"""Times FLA's backward pass of KDA (flash-linear-attention) on the shape file of kda_bwd.

    python3 bench/peers/fla_kda_bwd.py > fla.tsv
    attngen bench cases --families kda_bwd --peer-file fla.tsv
    python3 bench/peers/fla_kda_bwd.py --train bench/results/sm90_132sm/kda_train.csv

chunk_kda from raw inputs: gate with a lower bound of -5, L2 norm inside, beta in fp32, initial state given, final state asked
for; gradients of all inputs. Rows `fla-graph` are device time: forward and backward captured in a CUDA graph, less the
forward captured alone, medians over replays through inputs of more than twice the L2; rows `fla-eager` are wall time of
back-to-back backward calls on kept forward passes. With `keep` FLA keeps its intermediates (disable_recompute).

--train writes forward and backward together, attngen.kda beside FLA's chunk_kda in the same run, both as graphs: it needs the
package attngen. Errors are those of d_v and d_initial_state of attngen against FLA's. Needs torch, triton, fla-core and
flash-linear-attention.
"""
import argparse
import os
import subprocess
import sys
import time

import fla_kda_prefill as forward_peer
from fla_la_decode import eager_ms

FAMILY, BOUND, DIM = "kda_bwd", forward_peer.BOUND, forward_peer.DIM
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

    def __init__(self, torch, shape, keep):
        super().__init__(torch, shape)
        self.keep = bool(keep)
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


def measure(torch, shape, keep, replays):
    problem = Problem(torch, shape, keep)
    pair, alone = times(torch, problem, problem.fla_forward, replays)
    kept = [(x, problem.fla_forward(x)) for x in problem.sets[:2]]
    calls = [lambda x=x, o=o: problem.backward(x, o, keep=True) for x, o in kept]
    eager = eager_ms(torch, calls, max(10, min(50, int(20 / pair))), 5)
    return [("fla-graph", pair - alone), ("fla-eager", eager)]


def relative(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def train(torch, cases, path, replays):
    """Forward and backward of both, in one run."""
    with open(path, "w") as out:
        out.write(f"# gpu: {torch.cuda.get_device_name()}\n# forward and backward by graph replay; err: of attngen's d_v and "
                  "d_initial_state against FLA's, the greater\n")
        out.write("case,variant,ms,gbps,tflops,peer,peer_ms,speedup,err,peer_err\n")
        for name, keep, *shape in cases:
            problem = Problem(torch, shape, keep)
            ours = times(torch, problem, problem.our_forward, replays)[0]
            theirs = times(torch, problem, problem.fla_forward, replays)[0]
            x = problem.sets[0]
            pairs = zip(problem.step(x, problem.our_forward), problem.step(x, problem.fla_forward))
            err = max(relative(a, b) for i, (a, b) in enumerate(pairs) if INPUTS[i] in ("v", "initial_state"))
            out.write(f"{name},attngen.kda,{ours:.6f},,,fla-graph,{theirs:.6f},{theirs / ours:.4f},{err:.3e},\n")
            out.flush()
            print(f"{name:44s} {ours * 1e3:9.2f} us  fla {theirs * 1e3:9.2f} us  {theirs / ours:.3f}  err {err:.1e}",
                  file=sys.stderr)
            del problem
            torch.cuda.empty_cache()


def compile_part(torch, shape, part, parts):
    """Runs every parts-th configuration of each kernel once: they are in Triton's cache then."""
    from triton.runtime.autotuner import Autotuner

    def once(call, quantiles=None, **_):
        call()
        return [1.0] * 3

    prune = Autotuner.prune_configs
    Autotuner.prune_configs = lambda self, *args: (lambda all: all[part::parts] or all[:1])(list(prune(self, *args)))
    forward_peer.quick_tuning(once)
    for keep in (0, 1):
        problem = Problem(torch, shape, keep)
        problem.step(problem.sets[0], problem.fla_forward)
    torch.cuda.synchronize()


def compile_all(shapes, options):
    """Workers for all of it, a part of a shape's configurations each."""
    parts = max(1, options.jobs // len(shapes))
    todo = [(i, p) for p in range(parts) for i in range(len(shapes))]
    environment, running = dict(os.environ, FLA_CACHE_RESULTS="0"), []
    while todo or running:
        while todo and len(running) < options.jobs:
            i, part = todo.pop(0)
            shape = ",".join(str(n) for n in shapes[i] + (part, parts))
            running.append(subprocess.Popen([sys.executable, __file__, "--device", str(options.device), "--compile", shape],
                                            env=environment))
        time.sleep(0.1)
        running = [w for w in running if w.poll() is None]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", default="", help="only cases whose name contains this")
    parser.add_argument("--replays", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes that compile; 0: Triton's cache has it all")
    parser.add_argument("--device", type=int, default=0, help="CUDA device (default 0)")
    parser.add_argument("--train", metavar="FILE", help="write forward and backward together, beside attngen.kda")
    parser.add_argument("--list", action="store_true", help="print the case names and measure nothing")
    parser.add_argument("--compile", help=argparse.SUPPRESS)
    options = parser.parse_args()
    cases = [case for case in read_shapes() if options.cases in case[0]]
    if options.list:
        print("\n".join(case[0] for case in cases))
        return
    if not options.compile and options.jobs:
        start = time.time()
        compile_all(forward_peer.keys([case[1:2] + case[:1] + case[2:] for case in cases]), options)
        print(f"compiled in {time.time() - start:.0f} s", file=sys.stderr)
    import torch
    import triton
    import fla
    from triton.testing import do_bench

    torch.cuda.set_device(options.device)
    torch.manual_seed(0)
    if options.compile:
        *shape, part, parts = (int(n) for n in options.compile.split(","))
        compile_part(torch, shape, part, parts)
        return
    forward_peer.quick_tuning(lambda call, quantiles=None, **_: do_bench(call, warmup=3, rep=15, quantiles=quantiles))
    if options.train:
        train(torch, cases, options.train, options.replays)
        return
    print(f"# fla {fla.__version__}, triton {triton.__version__}, torch {torch.__version__}, {torch.cuda.get_device_name()}")
    print("# device time of CUDA graphs (fla-graph), wall time of back-to-back calls (fla-eager); see fla_kda_bwd.py")
    print("peer\tcase\tms\terr")
    print(f"# family: {FAMILY}")
    for peer in ("fla-graph", "fla-eager"):
        print(f"# note: {peer}: FLA {fla.__version__} on the same machine, the backward pass from raw inputs")
    for name, keep, *shape in cases:
        for peer, ms in measure(torch, shape, keep, options.replays):
            print(f"{peer}\t{name}\t{ms:.6f}\t-", flush=True)
            print(f"{name:44s} {peer} {ms * 1e3:9.2f} us", file=sys.stderr)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
