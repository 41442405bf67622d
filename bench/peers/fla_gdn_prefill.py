#!/usr/bin/env python3
"""Times FLA's chunk_gated_delta_rule (flash-linear-attention) on gdn_prefill's shape file.

    python3 bench/peers/fla_gdn_prefill.py > fla.tsv
    attngen bench cases --families gdn_prefill --peer-file fla.tsv

From raw inputs: gate by softplus and L2 norm inside, beta in fp32, initial state given, final state asked for. Rows `fla-graph`
are device time: a CUDA graph of calls that walk through inputs of more than twice the L2, median over replays. Cases of other
widths and types than bf16 and 128 are left out. Errors are those of the first tokens against the recurrence in float64. Needs
torch, triton, fla-core and flash-linear-attention.
"""
import argparse
import os
import sys

import fla_kda_prefill as kda

HERE = os.path.dirname(os.path.abspath(__file__))


def read_cases():
    """(name, batch, seq_len, num_tokens, qk heads, v heads) of each line that says no more."""
    with open(os.path.join(HERE, "..", "shapes", "gdn_prefill.txt")) as lines:
        for line in lines:
            words = dict(w.split("=", 1) for w in line.split("#")[0].split())
            if not words:
                continue
            shape = [int(words.pop(n, p)) for n, p in (("batch", 1), ("seq_len", 1024), ("num_tokens", 0), ("num_qk_heads", 64))]
            shape.append(int(words.pop("num_v_heads", shape[3])))
            if not words:
                yield (kda.case_name(kda.FORWARD, *shape), *shape)


class Problem(kda.Problem):
    """kda_prefill's, with a gate a head."""

    def draw(self):
        x = super().draw()
        x["g"] = x["g"][..., 0].contiguous()
        x["dt_bias"] = x["dt_bias"][:self.v_heads].contiguous()
        return x

    def forward(self, x):
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule

        return chunk_gated_delta_rule(**x, scale=self.scale, output_final_state=True, use_qk_l2norm_in_kernel=True,
                                      use_gate_in_kernel=True, cu_seqlens=self.cu)

    def error(self, o):
        torch, x = self.torch, self.sets[0]
        group, count = self.v_heads // self.heads, min(kda.CHECKED, self.first)
        q, k = (torch.nn.functional.normalize(x[n][0, :count].double(), dim=-1, eps=0).repeat_interleave(group, 1) for n in "qk")
        raw = x["g"][0, :count].double() + x["dt_bias"].double()
        decay = (-x["A_log"].double().exp() * torch.nn.functional.softplus(raw)).exp()
        v, beta, s = x["v"][0, :count].double(), x["beta"][0, :count].double(), x["initial_state"][0].double()
        difference = norm = 0.0
        for t in range(count):
            s = s * decay[t, :, None, None]
            e = v[t] - (k[t, :, :, None] * s).sum(-2)
            s = s + beta[t, :, None, None] * k[t, :, :, None] * e[:, None]
            expected = self.scale * (q[t, :, :, None] * s).sum(-2)
            difference = difference + (o[0, t].double() - expected).square().sum()
            norm = norm + expected.square().sum()
        return (difference / norm).sqrt().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", default="", help="only cases whose name contains this")
    parser.add_argument("--replays", type=int, default=7)
    parser.add_argument("--device", type=int, default=0, help="CUDA device (default 0)")
    parser.add_argument("--list", action="store_true", help="print the case names and measure nothing")
    options = parser.parse_args()
    cases = [case for case in read_cases() if options.cases in case[0]]
    if options.list:
        for case in cases:
            print(case[0])
        return
    import torch
    import triton
    import fla
    from triton.testing import do_bench

    torch.cuda.set_device(options.device)
    torch.manual_seed(0)
    kda.quick_tuning(lambda call, quantiles=None, **_: do_bench(call, warmup=3, rep=15, quantiles=quantiles))
    print(f"# fla {fla.__version__}, triton {triton.__version__}, torch {torch.__version__}, {torch.cuda.get_device_name()}")
    print("# device time of a CUDA graph (fla-graph); see fla_gdn_prefill.py")
    print("peer\tcase\tms\terr")
    with torch.no_grad():
        for name, *shape in cases:
            problem = Problem(torch, shape)
            o, _ = problem.forward(problem.sets[0])
            err = problem.error(o)
            del o
            ms = kda.device_time(torch, problem.forward, problem.sets, options.replays)
            print(f"fla-graph\t{name}\t{ms:.6f}\t{err:.3e}", flush=True)
            print(f"{name:44s} {ms * 1e3:9.2f} us  err {err:.1e}", file=sys.stderr)
            del problem
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
