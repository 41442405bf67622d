#!/usr/bin/env python3
"""Times PyTorch's attention backends (cuDNN, FlashAttention-2) on attn_fwd's shape file.

    python3 bench/peers/torch_attn_fwd.py > torch.tsv
    attngen bench cases --families attn_fwd --peer-file torch.tsv

Rows `cudnn` and `fa2` are device time of scaled_dot_product_attention under the backend of that name: a CUDA graph of calls
that walk through tensors of more than twice the L2, median over replays. Tensors are [batch, rows, heads, head_dim], as ours.
Cases that the function does not cover (windows, softcap, packed requests, causal queries behind a cache) are left out, and
so is a backend that refuses a case. Needs torch.
"""
import argparse
import os
import sys

from fla_la_decode import graph_ms

HERE = os.path.dirname(os.path.abspath(__file__))
PRESETS = {"batch": "1", "num_q_heads": "32", "q_len": "1024", "head_dim": "128", "dtype": "bf16", "causal": "no"}
DENSE = set(PRESETS) | {"num_kv_heads", "kv_len"}


def read_shapes(path, dtypes=("bf16", "fp16")):
    """The dense problems of a shape file, in order, as dictionaries."""
    with open(path) as lines:
        for line in lines:
            words = line.split("#")[0].replace(",", " ").split()
            if words:
                given = dict(w.split("=", 1) for w in words if not w.startswith("@"))
                shape = dict(PRESETS, **given)
                shape.setdefault("num_kv_heads", shape["num_q_heads"])
                shape.setdefault("kv_len", shape["q_len"])
                if set(given) <= DENSE and shape["dtype"] in dtypes and (shape["causal"] == "no" or shape["kv_len"] == shape["q_len"]):
                    yield shape


def case_name(s):
    """As the runtime's family names it."""
    heads = "" if s["num_kv_heads"] == s["num_q_heads"] else f"of{s['num_kv_heads']}"
    keys = "" if s["kv_len"] == s["q_len"] else f"of{s['kv_len']}"
    mask = "causal" if s["causal"] == "yes" else "full"
    return f"Z{s['batch']}-H{s['num_q_heads']}{heads}-D{s['head_dim']}-N{s['q_len']}{keys}-{mask}-{s['dtype']}"


def measure(torch, shape, backend, l2_bytes, replays, rest_ms):
    """ms and the relative error of the first request's first heads, or None where the backend refuses."""
    from torch.nn.attention import sdpa_kernel

    batch, heads, kv_heads, q_len, kv_len, dim = (
        int(shape[n]) for n in ("batch", "num_q_heads", "num_kv_heads", "q_len", "kv_len", "head_dim"))
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[shape["dtype"]]
    causal = shape["causal"] == "yes"
    set_bytes = 2 * dim * batch * 2 * (heads * q_len + kv_heads * kv_len)
    sets = max(1, min(16, 2 * l2_bytes // set_bytes + 1))

    def tensor(rows, count):
        return torch.randn(batch, rows, count, dim, device="cuda", dtype=dtype).transpose(1, 2)

    inputs = [(tensor(q_len, heads), tensor(kv_len, kv_heads), tensor(kv_len, kv_heads)) for _ in range(sets)]

    def attend(q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=kv_heads != heads)

    try:
        with sdpa_kernel(backend):
            q, k, v = inputs[0]
            o = attend(q, k, v)
            flops = 4 * batch * heads * q_len * kv_len * dim * (0.5 if causal else 1)
            launches = max(1, min(20, int(6e-3 / (flops / 5e14 + 1e-5))))
            ms = graph_ms(torch, [lambda i=i: attend(*i) for i in inputs], launches, replays, rest_ms)
    except RuntimeError as error:
        print(f"{case_name(shape)}: {backend}: {str(error).splitlines()[0]}", file=sys.stderr)
        return None
    rows = slice(max(0, q_len - 256), q_len) # of the last rows, which see all
    a, b, c = (x[0, 0].double() for x in (q, k, v))
    s = a[rows] @ b.T / dim**0.5
    if causal:
        s += torch.full_like(s, float("-inf")).triu(kv_len - s.shape[0] + 1)
    expected = s.softmax(-1) @ c
    error = ((o[0, 0, rows].double() - expected).norm() / expected.norm()).item()
    return ms, error


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", default=os.path.join(HERE, "..", "shapes", "attn_fwd.txt"))
    parser.add_argument("--replays", type=int, default=11)
    parser.add_argument("--rest", type=float, default=20, metavar="MS", help="idle time before each replay")
    parser.add_argument("--backends", default="cudnn,fa2")
    parser.add_argument("--device", type=int, default=0, help="CUDA device (default 0)")
    options = parser.parse_args()
    import torch
    from torch.nn.attention import SDPBackend

    backends = {"cudnn": SDPBackend.CUDNN_ATTENTION, "fa2": SDPBackend.FLASH_ATTENTION}
    torch.cuda.set_device(options.device)
    l2_bytes = torch.cuda.get_device_properties(options.device).L2_cache_size
    versions = f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}"
    rest = f"after {options.rest:g} ms of rest and an untimed replay" if options.rest else ""
    print("# family: attn_fwd")
    print("# note: cudnn:", versions, "scaled_dot_product_attention, cuDNN backend, device time by graph replay", rest)
    print("# note: fa2:", versions, "scaled_dot_product_attention, FlashAttention-2 backend, likewise")
    print("peer\tcase\tms\terr")
    for shape in read_shapes(options.list):
        for name in options.backends.split(","):
            result = measure(torch, shape, backends[name], l2_bytes, options.replays, options.rest)
            if result:
                print(f"{name}\t{case_name(shape)}\t{result[0]:.6f}\t{result[1]:.3e}", flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
