#!/usr/bin/env python3
"""Times FlashAttention-3's forward kernel on attn_fwd's shape file, where there is a library of it.

    FA3_LIBRARY=libfa3.so python3 bench/peers/fa3_attn_fwd.py > fa3.tsv
    attngen bench cases --families attn_fwd --peer-file fa3.tsv

Rows `fa3-live` are device time as in torch_attn_fwd.py: a CUDA graph of calls that walk through tensors of more than twice
the L2, median over replays. The library's one function is that of fa3_numerics.py; it covers fp16 and e4m3 with head_dim 64
and 128. Without a library nothing is measured. Needs torch.
"""
import argparse
import ctypes
import math
import os
import sys

from fla_la_decode import graph_ms
from torch_attn_fwd import HERE, case_name, read_shapes

DTYPES = ("fp16", "e4m3")


def measure(torch, library, shape, l2_bytes, replays, rest_ms):
    """ms of a call."""
    batch, heads, kv_heads, q_len, kv_len, dim = (
        int(shape[n]) for n in ("batch", "num_q_heads", "num_kv_heads", "q_len", "kv_len", "head_dim"))
    fp8, causal = shape["dtype"] == "e4m3", shape["causal"] == "yes"
    dtype, size = (torch.float8_e4m3fn, 1) if fp8 else (torch.float16, 2)
    sets = max(1, min(16, 2 * l2_bytes // (size * dim * batch * 2 * (heads * q_len + kv_heads * kv_len)) + 1))

    def tensor(rows, count):
        return torch.randn(batch, rows, count, dim, device="cuda").to(dtype)

    inputs = [(tensor(q_len, heads), tensor(kv_len, kv_heads), tensor(kv_len, kv_heads)) for _ in range(sets)]
    o = torch.empty(batch, q_len, heads, dim, device="cuda", dtype=torch.bfloat16 if fp8 else torch.float16)
    lse = torch.empty(batch, heads, q_len, device="cuda")
    semaphore = torch.zeros(64, device="cuda", dtype=torch.int32)
    sms = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count

    def attend(q, k, v):
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (q, k, v, o, lse)]
        status = library.fa3_fwd(*pointers, batch, heads, kv_heads, q_len, kv_len, dim, int(causal), int(fp8),
                                 ctypes.c_float(1 / math.sqrt(dim)), ctypes.c_void_p(semaphore.data_ptr()), sms,
                                 ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        if status:
            raise RuntimeError(f"{case_name(shape)}: fa3_fwd returns {status}")

    flops = 4 * batch * heads * q_len * kv_len * dim * (0.5 if causal else 1)
    launches = max(1, min(20, int(6e-3 / (flops / 5e14 + 1e-5))))
    return graph_ms(torch, [lambda i=i: attend(*i) for i in inputs], launches, replays, rest_ms)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", default=os.path.join(HERE, "..", "shapes", "attn_fwd.txt"))
    parser.add_argument("--library", default=os.environ.get("FA3_LIBRARY"), help="default: $FA3_LIBRARY")
    parser.add_argument("--replays", type=int, default=7)
    parser.add_argument("--rest", type=float, default=20, metavar="MS", help="idle time before each replay")
    parser.add_argument("--device", type=int, default=0, help="CUDA device (default 0)")
    options = parser.parse_args()
    print("# family: attn_fwd")
    if not options.library:
        print("fa3_attn_fwd.py: no library (FA3_LIBRARY, --library): nothing is measured", file=sys.stderr)
        print("peer\tcase\tms")
        return
    import torch

    library = ctypes.CDLL(options.library)
    torch.cuda.set_device(options.device)
    l2_bytes = torch.cuda.get_device_properties(options.device).L2_cache_size
    print("# note: fa3-live: FlashAttention-3's forward kernel (FA3_LIBRARY), one split, without pack_gqa, device time by graph replay after",
          f"{options.rest:g} ms of rest and an untimed replay, on the machine of this run, torch {torch.__version__}")
    print("peer\tcase\tms")
    for shape in read_shapes(options.list, DTYPES):
        if shape["head_dim"] in ("64", "128"):
            print(f"fa3-live\t{case_name(shape)}\t{measure(torch, library, shape, l2_bytes, options.replays, options.rest):.6f}", flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
