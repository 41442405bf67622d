# SPDX-License-Identifier: MIT
"""Errors of KDA's gradients, attngen's and FLA's, against torch's own gradients of the definition in float64.

    python3 gradients.py [--tokens 1024] [--heads 8] [--v-heads 8] [--dim 128]    prints {inputs: {gradient: [ours, FLA's]}} as JSON

Relative RMS errors on the same inputs, of four kinds: gaussian ones with gates of all sizes, the same with slow gates, keys of
one sign with slow gates, and fp16 ones. A process of its own, in which attngen is not FLA's backend.
"""
import argparse
import json

import torch
from test_autograd import OPTIONS, definition, inputs, relative

KINDS = {"gaussian": {}, "slow gates": {"bias": -5.0}, "alike keys": {"bias": -5.0, "keys": "uniform"},
         "fp16": {"dtype": torch.float16}}


def draw(options, bias=None, keys=None, dtype=torch.bfloat16):
    x = inputs("cuda", B=1, T=options.tokens, H=options.heads, HV=options.v_heads, K=options.dim, dtype=dtype, seed=3)
    with torch.no_grad():
        if bias is not None:
            x["dt_bias"].fill_(bias)
        if keys:
            for name in "qk":
                x[name].copy_(torch.rand(x[name].shape, generator=torch.Generator().manual_seed(4)))
    return x


def gradients(forward, x, d_o, d_final):
    leaves = {name: t.detach().clone().requires_grad_() for name, t in x.items()}
    o, final = forward(leaves)
    torch.autograd.backward((o, final), (d_o, d_final))
    return {"o": o, "final_state": final, **{name: t.grad for name, t in leaves.items()}}


def ours(x):
    import attngen

    return attngen.kda(**x, **OPTIONS)


def theirs(x):
    import fla_quick
    from fla.ops.kda import chunk_kda

    fla_quick.take_first()
    return chunk_kda(**{**x, "dt_bias": x["dt_bias"].reshape(-1)}, **OPTIONS, safe_gate=True)


def errors(x):
    torch.manual_seed(5)
    d_o, d_final = torch.randn_like(x["v"]), torch.randn_like(x["initial_state"])
    exact = gradients(lambda leaves: definition(**leaves), {name: t.double() for name, t in x.items()}, d_o.double(),
                      d_final.double())
    found = [gradients(forward, x, d_o, d_final) for forward in (ours, theirs)]
    return {name: [relative(side[name].reshape(t.shape), t) for side in found] for name, t in exact.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, default in (("tokens", 1024), ("heads", 8), ("v-heads", 8), ("dim", 128)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--kinds", default=",".join(KINDS), help="of inputs, comma-separated")
    options = parser.parse_args()
    print(json.dumps({kind: errors(draw(options, **KINDS[kind])) for kind in options.kinds.split(",")}))


if __name__ == "__main__":
    main()
