#!/usr/bin/env python3
"""Times FlashAttention-3 over caches, and PyTorch's backends, on attn_paged's shape file.

    FA3_LIBRARY=libpeers.so python3 bench/peers/fa3_attn_paged.py > fa3.tsv
    attngen bench cases --families attn_paged --peer-file fa3.tsv

Rows are device time as in torch_attn_fwd.py: a CUDA graph of calls that walk through caches of more than twice the L2, median
over replays; pages lie in random order. With more than 150 operations a byte the device rests before a replay, as for ours.

`fa3-live` is the best of FlashAttention-3's split counts (1 to 128), and of packing a key head's query heads into one tile
or not. The library has one C function, its kernel over caches (and that for adding splits up) with its parameters filled in:
    int fa3_kv(q, k, v, o, float *lse, float *o_of_splits, *lse_of_splits, int batch, heads, kv_heads, q_len, kv_len, head_dim,
               causal, window_left, float scale, int *table, width, page_size, num_pages, splits, pack, int *semaphore, num_sms,
               cudaStream_t)
of bf16, with head_dim 64 or 128 and one length for all requests; a table of page numbers, or null. The semaphore's clearing
is part of a call. Sinks are left out: the function has none. Without a library there are no such rows.

`cudnn-live` and `fa2-live` are scaled_dot_product_attention's backends, where a case is not paged. Needs torch.
"""
import argparse
import ctypes
import os
import sys
import warnings

from fla_la_decode import graph_ms

HERE = os.path.dirname(os.path.abspath(__file__))
PRESETS = {"batch": "1", "num_q_heads": "32", "q_len": "1", "kv_len": "1024", "page_size": "16", "head_dim": "128",
           "dtype": "bf16", "cache": "same", "causal": "yes", "window_left": "-1", "softcap": "no", "sink": "no"}
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
MOST_PARTIAL = 1 << 29  # numbers of all splits' outputs


class Case:
    """A problem of the shape file."""

    def __init__(self, given):
        fields = dict(PRESETS, **given)
        self.name = fields["@name"]
        self.batch, self.heads, self.q_len, self.kv_len, self.page, self.dim, self.window = (
            int(fields[n]) for n in ("batch", "num_q_heads", "q_len", "kv_len", "page_size", "head_dim", "window_left"))
        self.kv_heads = int(fields.get("num_kv_heads", self.heads))
        self.v_dim = 128 if self.dim == 192 else self.dim
        self.causal = fields["causal"] == "yes"
        one_length = int(fields.get("max_kv_len", self.kv_len)) == self.kv_len
        self.plain = one_length and fields["dtype"] == "bf16" and fields["cache"] == "same" and fields["softcap"] == "no"
        self.fa3 = self.plain and self.dim in (64, 128) and (not self.page or self.kv_len % self.page == 0)
        # A causal mask of torch's begins with the first key; one token sees all.
        self.torch = self.plain and not self.page and self.window < 0 and fields["sink"] == "no" and (
            not self.causal or self.q_len in (1, self.kv_len))
        window = self.kv_len if self.window < 0 else self.window
        seen, read = min(self.kv_len, window + 1), min(self.kv_len, window + self.q_len)
        rows = self.batch * self.q_len * self.heads
        self.ops = 2 * rows * seen * (self.dim + self.v_dim) * (0.5 if self.causal and self.q_len == self.kv_len > 1 else 1)
        self.bytes = 2 * (self.dim + self.v_dim) * (self.batch * read * self.kv_heads + rows)


def read_cases(path):
    with open(path) as lines:
        for line in lines:
            words = line.split("#")[0].split()
            given = dict(w.split("=", 1) for w in words)
            if "@name" in given:
                yield Case(given)


class Tensors:
    """A case's inputs: as many caches as a walk around the L2 takes."""

    def __init__(self, torch, c, l2_bytes):
        self.case = c
        size = 2 * c.batch * c.kv_len * c.kv_heads * (c.dim + c.v_dim)
        sets = max(1, min(8, 2 * l2_bytes // size + 1))

        def normal(*shape):
            return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

        rows = c.batch * c.kv_len
        self.caches = [(normal(rows, c.kv_heads, c.dim), normal(rows, c.kv_heads, c.v_dim)) for _ in range(sets)]
        self.q = normal(c.batch, c.q_len, c.heads, c.dim)
        self.width = c.kv_len // c.page if c.page else 0
        self.table = None
        if c.page:
            self.table = torch.randperm(c.batch * self.width, device="cuda").int().view(c.batch, self.width)

    def error(self, torch, o):
        """Relative Frobenius error of a head's last rows, of the last request with the first cache."""
        c, b, head = self.case, self.case.batch - 1, self.case.heads // 2
        k, v = (x.view(-1, c.page or c.kv_len, *x.shape[1:]) for x in self.caches[0])
        at = self.table[b].long() if c.page else torch.tensor([b], device="cuda")
        k, v = (x[at][:, :, head * c.kv_heads // c.heads].reshape(c.kv_len, -1).double() for x in (k, v))
        first = max(0, c.q_len - 256)
        s = self.q[b, first:, head].double() @ k.T * c.dim**-0.5
        key = torch.arange(c.kv_len, device="cuda")[None]
        row = torch.arange(first, c.q_len, device="cuda")[:, None] + c.kv_len - c.q_len
        if c.causal:
            s = s.masked_fill(key > row, float("-inf"))
        if c.window >= 0:
            s = s.masked_fill(key < row - c.window, float("-inf"))
        expected = s.softmax(-1) @ v
        return ((o[b, first:, head].double() - expected).norm() / expected.norm()).item()


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr() if tensor is not None else None)


def time_of(torch, c, calls, replays, rest_ms):
    launches = max(len(calls), min(20, int(2e-3 / (c.bytes / 4e12 + c.ops / 6e14 + 3e-6))))
    return graph_ms(torch, calls, launches, replays, rest_ms if c.ops > 150 * c.bytes else 0)


def measure_fa3(torch, library, t, options):
    """ms at the best setting, the error, splits and packing."""
    c = t.case
    o = torch.empty(c.batch, c.q_len, c.heads, c.dim, device="cuda", dtype=torch.bfloat16)
    rows = o[..., 0].numel()
    lse = torch.empty(rows, device="cuda")
    most = max(s for s in SPLITS if s == 1 or s * rows * c.dim <= MOST_PARTIAL)
    o_of_splits = torch.empty(most * rows * c.dim, device="cuda") if most > 1 else None
    lse_of_splits = torch.empty(most * rows, device="cuda")
    semaphore = torch.zeros(64, device="cuda", dtype=torch.int32)
    sms = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count

    def run(k, v, splits, pack):
        status = library.fa3_kv(
            *(pointer(x) for x in (t.q, k, v, o, lse, o_of_splits, lse_of_splits)), c.batch, c.heads, c.kv_heads, c.q_len,
            c.kv_len, c.dim, int(c.causal), c.window, ctypes.c_float(c.dim**-0.5), pointer(t.table), t.width, c.page,
            c.batch * t.width, splits, pack, pointer(semaphore), sms,
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        if status:
            raise RuntimeError(f"{c.name}: fa3_kv returns {status}")

    def calls(splits, pack):
        return [lambda k=k, v=v: run(k, v, splits, pack) for k, v in t.caches]

    # Packed always where there are pages or splits.
    settings = [(1, 0), (1, 1)] if not c.page else [(1, 1)]
    settings += [(s, 1) for s in SPLITS if 1 < s <= most]
    best, behind = None, 0
    for splits, pack in settings:
        ms = time_of(torch, c, calls(splits, pack), 3, 0)
        behind = behind + 1 if best and ms > 1.3 * best[0] else 0
        if not best or ms < best[0]:
            best = (ms, splits, pack)
        if behind == 3:
            break
    ms = time_of(torch, c, calls(*best[1:]), options.replays, options.rest)
    run(*t.caches[0], *best[1:])
    return ms, t.error(torch, o), best[1:]


def measure_torch(torch, t, backend, options):
    """ms and the error, or None where the backend refuses; its warnings say the same at length."""
    from torch.nn.attention import sdpa_kernel

    c = t.case
    q = t.q.transpose(1, 2)
    caches = [tuple(x.view(c.batch, c.kv_len, c.kv_heads, -1).transpose(1, 2) for x in kv) for kv in t.caches]

    def run(k, v):
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=c.causal and c.q_len > 1, enable_gqa=c.heads != c.kv_heads)

    try:
        with warnings.catch_warnings(), sdpa_kernel(backend):
            warnings.simplefilter("ignore")
            o = run(*caches[0]).transpose(1, 2)
            return time_of(torch, c, [lambda kv=kv: run(*kv) for kv in caches], options.replays, options.rest), t.error(torch, o)
    except RuntimeError as error:
        print(f"{c.name}: {backend}: {str(error).splitlines()[0]}", file=sys.stderr)
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", default=os.path.join(HERE, "..", "shapes", "attn_paged.txt"))
    parser.add_argument("--library", default=os.environ.get("FA3_LIBRARY"), help="default: $FA3_LIBRARY")
    parser.add_argument("--cases", default="", help="names, separated by commas (default: all)")
    parser.add_argument("--replays", type=int, default=7)
    parser.add_argument("--rest", type=float, default=20, metavar="MS", help="idle time before the replays that rest")
    parser.add_argument("--device", type=int, default=0, help="CUDA device (default 0)")
    options = parser.parse_args()
    print("# family: attn_paged")
    if not options.library:
        print("fa3_attn_paged.py: no library (FA3_LIBRARY, --library): nothing is measured", file=sys.stderr)
        print("peer\tcase\tms\terr")
        return
    import torch
    from torch.nn.attention import SDPBackend

    backends = {"cudnn-live": SDPBackend.CUDNN_ATTENTION, "fa2-live": SDPBackend.FLASH_ATTENTION}
    library = ctypes.CDLL(options.library)
    torch.cuda.set_device(options.device)
    l2_bytes = torch.cuda.get_device_properties(options.device).L2_cache_size
    how = (f"device time by graph replay, beyond 150 operations a byte after {options.rest:g} ms of rest and an untimed replay, "
           f"on the machine of this run, torch {torch.__version__}")
    print("# note: fa3-live: FlashAttention-3's kernel over caches (FA3_LIBRARY), the best of its splits and of packing, without sinks,", how)
    for name, which in (("cudnn-live", f"cuDNN {torch.backends.cudnn.version()}"), ("fa2-live", "FlashAttention-2")):
        print(f"# note: {name}: scaled_dot_product_attention, backend {which},", how)
    print("peer\tcase\tms\terr")
    for case in read_cases(options.list):
        if not (case.fa3 or case.torch) or options.cases and case.name not in options.cases.split(","):
            continue
        tensors = Tensors(torch, case, l2_bytes)
        if case.fa3:
            ms, error, setting = measure_fa3(torch, library, tensors, options)
            print(f"# {case.name}: {setting[0]} splits, {'' if setting[1] else 'not '}packed")
            print(f"fa3-live\t{case.name}\t{ms:.6f}\t{error:.3e}", flush=True)
        for name, backend in backends.items():
            result = case.torch and measure_torch(torch, tensors, backend, options)
            if result:
                print(f"{name}\t{case.name}\t{result[0]:.6f}\t{result[1]:.3e}", flush=True)
        del tensors
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
