#!/usr/bin/env python3
"""Times FLA's Triton kernels (flash-linear-attention) on the shape files of kda_prefill and of its stages.

    python3 bench/peers/fla_kda_prefill.py > fla.tsv
    attngen bench cases --families kda_prefill --peer-file fla.tsv

The forward is chunk_kda from raw inputs: gate with a lower bound of -5 and L2 norm inside, beta in fp32, initial state given,
final state asked for. Rows `fla-graph` are device time: a CUDA graph of calls that walk through inputs of more than twice the
L2, median over replays; rows `fla-eager` are wall time of back-to-back calls, synchronized at the end. The stages are FLA's
functions behind it, from inputs that the ones before made, device time alone:

    kda_gate          kda_gate_chunk_cumsum, l2norm_fwd of q and of k
    kda_chunk_intra   chunk_kda_fwd_intra (A_qk, inverse, w, u, kg)
    kda_recompute_wu  recompute_w_u_fwd (w, u, kg)
    kda_chunk_h       chunk_gated_delta_rule_fwd_h
    kda_chunk_o       chunk_gla_fwd_o_gk

Grouped value heads are FLA's own, without repeated q and k. Kernels are compiled in parallel first, every configuration of each;
FLA's autotuning then times them one by one, in shorter runs than its default. Errors are those of the outputs of the first
tokens against the recurrence in float64. Needs torch, triton, fla-core and flash-linear-attention.
"""
import argparse
import os
import subprocess
import sys
import time

from fla_la_decode import eager_ms, graph_ms

HERE = os.path.dirname(os.path.abspath(__file__))
FORWARD, STAGES = "kda_prefill", ("kda_gate", "kda_chunk_intra", "kda_recompute_wu", "kda_chunk_h", "kda_chunk_o")
CHUNK, DIM, BOUND, CHECKED = 64, 128, -5.0, 256
NOTES = ("the functions that do this stage, which allocate their outputs (and clear some)",
         "the forward from raw inputs (bf16, gate with lower bound and L2 norm inside, beta in fp32)")


def read_shapes(family):
    """The problems of a family's shape file, in order: (case name, batch, seq_len, num_tokens, qk heads, v heads)."""
    with open(os.path.join(HERE, "..", "shapes", family + ".txt")) as lines:
        for line in lines:
            words = dict(w.split("=", 1) for w in line.split("#")[0].replace(",", " ").split())
            if not words:
                continue
            batch, length, tokens, heads = (int(words.pop(n, p)) for n, p in
                                            (("batch", 1), ("seq_len", 1024), ("num_tokens", 0), ("num_qk_heads", 64)))
            shape = (batch, length, tokens, heads, int(words.pop("num_v_heads", heads)))
            if not words:  # others have no name here
                yield (case_name(family, *shape),) + shape


def case_name(family, batch, length, tokens, heads, v_heads):
    """As the runtime's families name it."""
    name = f"H{heads}" if heads == v_heads else f"HQK{heads}-HV{v_heads}"
    if tokens:
        spread = "uniform" if length == -(-tokens // batch) else "skewed" if 2 * length == tokens else f"max{length}"
        name = f"varlen-{spread}-N{batch}-T{tokens}-{name}"
    else:
        name = f"B{batch}-T{length}-{name}"
    return name if family == FORWARD else f"{family[4:]}-{name}"


def offsets(batch, length, tokens):
    """cu_seqlens of a packed case: the first sequence has `length` tokens, the others are equal."""
    cu, left = [0], tokens
    for n in range(batch):
        behind = batch - n - 1
        wanted = length if n == 0 else left // (behind + 1)
        size = max(left - behind * length, min(wanted, left, length))
        cu.append(cu[-1] + size)
        left -= size
    return cu


class Problem:
    """A case's inputs, several sets of them, and FLA's functions on them."""

    def __init__(self, torch, shape):
        self.torch = torch
        batch, length, tokens, self.heads, self.v_heads = shape
        self.rows = (1, tokens) if tokens else (batch, length)
        self.sequences, self.first = batch, length
        self.cu = torch.tensor(offsets(batch, length, tokens), dtype=torch.int64, device="cuda") if tokens else None
        self.scale = DIM**-0.5
        l2 = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        bytes_of_set = self.rows[0] * self.rows[1] * DIM * 4 * (self.heads + self.v_heads)
        self.sets = [self.draw() for _ in range(max(2, -(-int(2.2 * l2) // bytes_of_set)))]

    def draw(self):
        torch, heads, v_heads = self.torch, self.heads, self.v_heads

        def normal(*size, dtype=torch.bfloat16):
            return torch.randn(*size, device="cuda", dtype=dtype)

        return {
            "q": normal(*self.rows, heads, DIM),
            "k": normal(*self.rows, heads, DIM),
            "v": normal(*self.rows, v_heads, DIM),
            "g": normal(*self.rows, v_heads, DIM),
            "beta": torch.rand(*self.rows, v_heads, device="cuda"),
            "A_log": normal(v_heads, dtype=torch.float32),
            "dt_bias": normal(v_heads * DIM, dtype=torch.float32),
            "initial_state": normal(self.sequences, v_heads, DIM, DIM, dtype=torch.float32),
        }

    def forward(self, x):
        from fla.ops.kda import chunk_kda

        return chunk_kda(**x, scale=self.scale, output_final_state=True, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
                         safe_gate=True, lower_bound=BOUND, cu_seqlens=self.cu)

    def stage(self, family):
        """A function of a set of inputs, in which those of the stage are there already."""
        from fla.modules.norm.l2norm import l2norm_fwd
        from fla.ops.common.chunk_delta_h import chunk_gated_delta_rule_fwd_h
        from fla.ops.gla.chunk import chunk_gla_fwd_o_gk
        from fla.ops.kda.chunk_intra import chunk_kda_fwd_intra
        from fla.ops.kda.gate import kda_gate_chunk_cumsum
        from fla.ops.kda.wy_fast import recompute_w_u_fwd
        from fla.ops.utils.constant import RCP_LN2
        from fla.ops.utils.index import prepare_chunk_indices

        index = prepare_chunk_indices(self.cu, CHUNK) if self.cu is not None else None
        where = {"cu_seqlens": self.cu, "chunk_indices": index}

        def gate(x):
            sums = kda_gate_chunk_cumsum(x["g"], x["A_log"], CHUNK, scale=RCP_LN2, dt_bias=x["dt_bias"], lower_bound=BOUND, **where)
            return l2norm_fwd(x["q"])[0], l2norm_fwd(x["k"])[0], sums

        def intra(x):
            return chunk_kda_fwd_intra(x["qn"], x["kn"], x["v"], x["G"], x["beta"], self.scale, safe_gate=True, **where)

        def recompute(x):
            return recompute_w_u_fwd(k=x["kn"], v=x["v"], beta=x["beta"], A=x["Akk"], gk=x["G"], **where)

        def states(x):
            return chunk_gated_delta_rule_fwd_h(k=x["kg"], w=x["w"], u=x["u"], gk=x["G"], initial_state=x["initial_state"],
                                                output_final_state=True, **where)

        def output(x):
            return chunk_gla_fwd_o_gk(x["qn"], x["vn"], x["G"], x["Aqk"], x["h"], self.scale, **where)

        for x in self.sets:
            x["qn"], x["kn"], x["G"] = gate(x)
            if family != "kda_gate":
                x["w"], x["u"], _, x["kg"], x["Aqk"], x["Akk"] = intra(x)
            if family == "kda_chunk_o":
                x["h"], x["vn"], _ = states(x)
        return dict(zip(STAGES, (gate, intra, recompute, states, output)))[family]

    def error(self, o):
        """Relative Frobenius error of the first sequence's first outputs against the recurrence in float64."""
        torch, x = self.torch, self.sets[0]
        group, count = self.v_heads // self.heads, min(CHECKED, self.first)
        q, k = (torch.nn.functional.normalize(x[n][0, :count].double(), dim=-1, eps=0).repeat_interleave(group, 1) for n in "qk")
        raw = x["g"][0, :count].double() + x["dt_bias"].double().view(self.v_heads, -1)
        decay = (BOUND * (x["A_log"].double().exp()[:, None] * raw).sigmoid()).exp()
        v, beta = x["v"][0, :count].double(), x["beta"][0, :count].double()
        s = x["initial_state"][0].double()
        difference = norm = 0.0
        for t in range(count):
            s = s * decay[t, :, :, None]
            e = v[t] - (k[t, :, :, None] * s).sum(-2)
            s = s + beta[t, :, None, None] * k[t, :, :, None] * e[:, None]
            expected = self.scale * (q[t, :, :, None] * s).sum(-2)
            difference = difference + (o[0, t].double() - expected).square().sum()
            norm = norm + expected.square().sum()
        return (difference / norm).sqrt().item()


def device_time(torch, function, sets, replays):
    """Median ms of a call, by graph replay."""
    for x in sets:
        function(x)
    torch.cuda.synchronize()
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    function(sets[0])
    stop.record()
    stop.synchronize()
    launches = -(-max(4, int(4 / max(start.elapsed_time(stop), 0.02))) // len(sets)) * len(sets)
    return graph_ms(torch, [lambda x=x: function(x) for x in sets], launches, replays)


def measure(torch, family, name, shape, replays):
    problem = Problem(torch, shape)
    if family != FORWARD:
        return [("fla-graph", device_time(torch, problem.stage(family), problem.sets, replays), "-")]
    o, _ = problem.forward(problem.sets[0])
    err = f"{problem.error(o):.3e}"
    del o
    graph = device_time(torch, problem.forward, problem.sets, replays)
    eager = eager_ms(torch, [lambda x=x: problem.forward(x) for x in problem.sets], max(10, min(50, int(20 / graph))), 5)
    return [("fla-graph", graph, err), ("fla-eager", eager, err)]


# ---- compiling in parallel ----------------------------------------------------------------------------------------------


def keys(cases):
    """What FLA's kernels are specialized by: a small shape for each."""
    found = {}
    for _, _, batch, length, tokens, heads, v_heads in cases:
        found.setdefault((heads, v_heads, tokens > 0), (2, 512, 1024 if tokens else 0, heads, v_heads))
    return list(found.values())


def quick_tuning(time_it):
    """How Triton's autotuner times a configuration from here on."""
    from triton.runtime.autotuner import Autotuner

    Autotuner.do_bench = staticmethod(time_it)


def compile_part(torch, shape, part, parts):
    """Runs every parts-th configuration of each kernel once: they are in Triton's cache then."""
    from triton.runtime.autotuner import Autotuner

    def once(call, quantiles=None, **_):
        call()
        return [1.0] * 3

    prune = Autotuner.prune_configs
    Autotuner.prune_configs = lambda self, *args: (lambda all: all[part::parts] or all[:1])(list(prune(self, *args)))
    quick_tuning(once)
    problem = Problem(torch, shape)
    problem.forward(problem.sets[0])
    torch.cuda.synchronize()


def compile_all(shapes, options):
    """Workers for all of it, a part of a shape's configurations each."""
    parts = max(1, options.jobs // len(shapes))
    todo = [(i, p) for p in range(parts) for i in range(len(shapes))]
    environment = dict(os.environ, FLA_CACHE_RESULTS="0")  # what a worker times is not kept
    running = []
    while todo or running:
        while todo and len(running) < options.jobs:
            i, part = todo.pop(0)
            shape = ",".join(str(n) for n in shapes[i] + (part, parts))
            running.append(subprocess.Popen([sys.executable, __file__, "--device", str(options.device), "--compile", shape], env=environment))
        time.sleep(0.1)
        running = [w for w in running if w.poll() is None]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--families", default=",".join((FORWARD,) + STAGES), help="of these alone")
    parser.add_argument("--cases", default="", help="only cases whose name contains this")
    parser.add_argument("--replays", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes that compile; 0: Triton's cache has it all")
    parser.add_argument("--device", type=int, default=0, help="CUDA device (default 0)")
    parser.add_argument("--list", action="store_true", help="print the case names and measure nothing")
    parser.add_argument("--compile", help=argparse.SUPPRESS)
    options = parser.parse_args()
    cases = [(family,) + case for family in options.families.split(",") for case in read_shapes(family) if options.cases in case[0]]
    if options.list:
        for case in cases:
            print(case[1])
        return
    if not options.compile and options.jobs:
        start = time.time()
        compile_all(keys(cases), options)
        print(f"compiled in {time.time() - start:.0f} s", file=sys.stderr)
    import torch
    import triton
    import fla
    from triton.testing import do_bench

    torch.cuda.set_device(options.device)
    torch.manual_seed(0)
    with torch.no_grad():
        if options.compile:
            *shape, part, parts = (int(n) for n in options.compile.split(","))
            compile_part(torch, shape, part, parts)
            return
        quick_tuning(lambda call, quantiles=None, **_: do_bench(call, warmup=3, rep=15, quantiles=quantiles))
        print(f"# fla {fla.__version__}, triton {triton.__version__}, torch {torch.__version__}, {torch.cuda.get_device_name()}")
        print("# device time of a CUDA graph (fla-graph), wall time of back-to-back calls (fla-eager); see fla_kda_prefill.py")
        print("peer\tcase\tms\terr")
        last = None
        for family, name, *shape in cases:
            if family != last:
                print(f"# family: {family}")
                for peer in ("fla-graph", "fla-eager") if family == FORWARD else ("fla-graph",):
                    print(f"# note: {peer}: FLA {fla.__version__} on the same machine, {NOTES[family == FORWARD]}")
                last = family
            start = time.time()
            for peer, ms, err in measure(torch, family, name, shape, options.replays):
                print(f"{peer}\t{name}\t{ms:.6f}\t{err}", flush=True)
                print(f"{name:44s} {peer} {ms * 1e3:9.2f} us  err {err}  ({time.time() - start:.1f} s)", file=sys.stderr)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
