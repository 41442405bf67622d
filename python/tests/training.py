# SPDX-License-Identifier: MIT
"""A small model of KDA layers that learns random data, and the loss of each step.

    python3 training.py attngen|fla|definition [--steps 200] [--device cuda]    prints the losses as JSON

Sequences repeat a random pattern of their own with gaps of noise, so that a layer has to remember what it has seen: the loss
falls only if gates, betas, keys and values all learn. Weights, data and order are the same in every run.
"""
import argparse
import json

import torch

VOCABULARY, PATTERN, BOUND = 64, 12, -5.0


def attngen_kda(**x):
    import attngen

    return attngen.kda(**x, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True,
                       lower_bound=BOUND)[0]


def fla_kda(**x):
    import fla_quick
    from fla.ops.kda import chunk_kda

    fla_quick.take_first()
    x["dt_bias"] = x["dt_bias"].reshape(-1)
    return chunk_kda(**x, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True,
                     safe_gate=True, lower_bound=BOUND)[0]


def definition_kda(q, k, v, g, beta, A_log, dt_bias):
    from test_autograd import definition

    state = torch.zeros(v.shape[0], v.shape[2], q.shape[3], v.shape[3])
    return definition(*(x.float() for x in (q, k, v, g, beta)), state, A_log, dt_bias)[0].to(v.dtype)


ATTENTIONS = {"attngen": attngen_kda, "fla": fla_kda, "definition": definition_kda}


class Layer(torch.nn.Module):
    def __init__(self, width, heads, v_heads, dim):
        super().__init__()
        self.sizes = [heads * dim, heads * dim, v_heads * dim, v_heads * dim, v_heads]
        self.heads, self.dim = (heads, heads, v_heads, v_heads), dim
        self.norm = torch.nn.RMSNorm(width)
        self.project = torch.nn.Linear(width, sum(self.sizes), bias=False)
        self.out = torch.nn.Linear(v_heads * dim, width, bias=False)
        self.A_log = torch.nn.Parameter(torch.zeros(v_heads))
        self.dt_bias = torch.nn.Parameter(torch.full((v_heads, dim), -3.0))  # gates near 0 at first: long memory

    def forward(self, x, attention):
        parts = self.project(self.norm(x)).to(torch.bfloat16).split(self.sizes, -1)
        q, k, v, g = (p.unflatten(-1, (h, self.dim)).contiguous() for p, h in zip(parts, self.heads))
        o = attention(q=q, k=k, v=v, g=g, beta=parts[4].contiguous(), A_log=self.A_log, dt_bias=self.dt_bias)
        return x + self.out(o.flatten(2).float())


class Model(torch.nn.Module):
    def __init__(self, layers=2, width=128, heads=2, v_heads=4, dim=64):
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, width)
        torch.nn.init.normal_(self.embed.weight, std=width**-0.5)
        self.layers = torch.nn.ModuleList(Layer(width, heads, v_heads, dim) for _ in range(layers))
        self.norm = torch.nn.RMSNorm(width)

    def forward(self, tokens, attention):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, attention)
        return self.norm(x) @ self.embed.weight.T


def batch(generator, rows, length):
    """Patterns of PATTERN tokens, repeated; every eighth token is noise."""
    pattern = torch.randint(VOCABULARY, (rows, PATTERN), generator=generator)
    tokens = pattern.repeat(1, -(-length // PATTERN))[:, :length]
    noise = torch.rand(rows, length, generator=generator) < 0.125
    return torch.where(noise, torch.randint(VOCABULARY, (rows, length), generator=generator), tokens)


def losses(attention, steps, device, rows=8, length=192, **sizes):
    torch.manual_seed(0)
    model = Model(**sizes).to(device)
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
    found = []
    for _ in range(steps):
        tokens = batch(generator, rows, length + 1).to(device)
        logits = model(tokens[:, :-1], attention)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def apart(a, b):
    """How far two curves are apart: the greatest difference of means over ten steps, of their own size."""
    means = [torch.tensor(x).unfold(0, 10, 1).mean(1) for x in (a, b)]
    return float(((means[0] - means[1]).abs() / means[1]).max())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("attention", choices=ATTENTIONS)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--device", default="cuda")
    for name, default in (("dim", 64), ("heads", 2), ("v-heads", 4)):
        parser.add_argument("--" + name, type=int, default=default)
    options = parser.parse_args()

    print(json.dumps(losses(ATTENTIONS[options.attention], options.steps, options.device, dim=options.dim,
                            heads=options.heads, v_heads=options.v_heads)))


if __name__ == "__main__":
    main()
