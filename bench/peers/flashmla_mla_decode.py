#!/usr/bin/env python3
"""Times FlashMLA's dense decode kernels on mla_decode's shape file, where there is a library of them.

    FLASHMLA_LIBRARY=libpeers.so python3 bench/peers/flashmla_mla_decode.py > flashmla.tsv
    attngen bench cases --families mla_decode --peer-file flashmla.tsv

Rows `flashmla-live` are device time of the split and the combine kernel, by a CUDA graph of calls that walk through caches of
more than twice the L2, median over replays; the scheduler's metadata is made once, ahead. The device rests before a replay
where it does for ours: with more than 150 operations a byte, which the power limit bounds. They cover bf16 caches with pages
of 64 rows. Lengths that differ are those of `attngen bench`. The library has three functions: flashmla_parts(H, T, SMs),
flashmla_meta() and flashmla_run(), as Peer calls them. Without a library nothing is measured. Needs torch.
"""
import argparse
import ctypes
import os
import sys

from fla_la_decode import graph_ms

HERE = os.path.dirname(os.path.abspath(__file__))
PAGE, WIDTH, LATENT = 64, 576, 512
PRESETS = {"num_heads": 16, "q_len": 1, "kv_len": 1024}
FIELDS = {"batch", "num_heads", "q_len", "kv_len", "max_kv_len", "causal"}
MASK = (1 << 64) - 1


def read_shapes(path):
    """The problems that FlashMLA has a kernel for, in order."""
    with open(path) as lines:
        for line in lines:
            words = line.split("#")[0].split()
            if not words or any(w.startswith("@") for w in words):
                continue
            given = dict(w.split("=", 1) for w in words)
            causal = given.pop("causal", "no") == "yes"
            if not given.keys() <= FIELDS or "batch" not in given:
                continue  # another page size, type or width
            shape = dict(PRESETS, **{name: int(value) for name, value in given.items()})
            shape.setdefault("max_kv_len", shape["kv_len"])
            shape["causal"] = causal
            if causal == (shape["q_len"] > 1):  # the library's kernel masks where there are several tokens
                yield shape


def intensity(s):
    """Operations a byte, by which `attngen bench cases --rest` lets a problem rest."""
    cache_rows, rows = s["batch"] * s["kv_len"], s["q_len"] * s["num_heads"]
    size = cache_rows * WIDTH * 2 + s["batch"] * rows * (WIDTH + LATENT) * 2
    return 2 * rows * cache_rows * (WIDTH + LATENT) / size


def case_name(s):
    """As the runtime's family names it."""
    of = f"of{s['max_kv_len']}" if s["max_kv_len"] != s["kv_len"] else ""
    return (f"B{s['batch']}-N{s['kv_len']}{of}-H{s['num_heads']}-P{PAGE}-T{s['q_len']}{'c' if s['causal'] else ''}-bf16")


def scatter(seed, index):
    """0 to below 1, as runtime/reference/scatter.h."""
    z = ((seed + 1) * 0x9e3779b97f4a7c15 + index) & MASK
    z = ((z ^ z >> 30) * 0xbf58476d1ce4e5b9) & MASK
    z = ((z ^ z >> 27) * 0x94d049bb133111eb) & MASK
    return ((z ^ z >> 31) >> 11) * 2.0 ** -53


def lengths(s):
    """As runtime/families/mla_decode/inputs.c: the first request has the greatest length, the second none."""
    mean, most, batch = s["kv_len"], s["max_kv_len"], s["batch"]
    if mean == most or batch == 1:
        return [mean] * batch
    skew = most / mean - 1
    return [most, 0][:batch] + [int((most + 1) * scatter(0, b) ** skew) for b in range(2, batch)]


class Peer:
    """A case's tensors, and calls of the library on them."""

    def __init__(self, torch, library, shape, l2_bytes):
        self.torch, self.library, self.shape = torch, library, shape
        batch, heads, tokens = shape["batch"], shape["num_heads"], shape["q_len"]
        count = lengths(shape)
        pages = [max(1, -(-n // PAGE)) for n in count]
        self.pages, self.width = sum(pages), max(pages)
        sets = max(1, min(8, 2 * l2_bytes // (self.pages * PAGE * WIDTH * 2) + 1))

        def normal(*size):
            return torch.randn(*size, device="cuda", dtype=torch.bfloat16)

        self.caches = [normal(self.pages, PAGE, WIDTH).mul_(0.5) for _ in range(sets)]
        self.q = normal(batch, tokens, heads, WIDTH)
        order = torch.randperm(self.pages).int()
        table = torch.zeros(batch, self.width, dtype=torch.int32)
        at = 0
        for b, n in enumerate(pages):
            table[b, :n] = order[at:at + n]
            at += n
        self.table = table.cuda()
        self.lengths = torch.tensor(count, dtype=torch.int32, device="cuda")
        sms = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
        self.parts = library.flashmla_parts(heads, tokens, sms)
        rows = tokens * heads
        self.meta = torch.empty(self.parts, 8, dtype=torch.int32, device="cuda")
        self.splits = torch.empty(batch + 1, dtype=torch.int32, device="cuda")
        self.o = torch.empty(batch, tokens, heads, LATENT, device="cuda", dtype=torch.bfloat16)
        self.lse = torch.empty(batch, rows, device="cuda")
        self.lse_accum = torch.empty(batch + self.parts, rows, device="cuda")
        self.o_accum = torch.empty(batch + self.parts, rows, LATENT, device="cuda")
        library.flashmla_meta(batch, tokens, *self.pointers(self.lengths, self.meta, self.splits), self.parts,
                              self.stream())

    @staticmethod
    def pointers(*tensors):
        return [ctypes.c_void_p(t.data_ptr()) for t in tensors]

    def stream(self):
        return ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)

    def run(self, cache):
        s = self.shape
        self.library.flashmla_run(*self.pointers(self.q, cache, self.o, self.lse, self.lse_accum, self.o_accum),
                                  s["batch"], s["q_len"], s["num_heads"], self.pages, *self.pointers(self.table),
                                  self.width, *self.pointers(self.lengths, self.meta, self.splits), self.parts,
                                  ctypes.c_float(192 ** -0.5), self.stream())

    def error(self):
        """Relative Frobenius error of the first and the last request, against double precision."""
        torch, s = self.torch, self.shape
        self.run(self.caches[0])
        difference = norm = 0.0
        for b in {0, s["batch"] - 1}:
            n = int(self.lengths[b])
            if n == 0:
                continue
            keys = self.caches[0][self.table[b, :-(-n // PAGE)].long()].reshape(-1, WIDTH)[:n].double()
            for t in range(s["q_len"]):
                logits = self.q[b, t].double() @ keys.T * 192 ** -0.5
                if s["causal"]:
                    logits[:, max(0, n - s["q_len"] + t + 1):] = float("-inf")
                exact = torch.softmax(logits, -1) @ keys[:, :LATENT]
                difference += (self.o[b, t].double() - exact).square().sum().item()
                norm += exact.square().sum().item()
        return (difference / norm) ** 0.5 if norm else 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", default=os.path.join(HERE, "..", "shapes", "mla_decode.txt"))
    parser.add_argument("--library", default=os.environ.get("FLASHMLA_LIBRARY"), help="default: $FLASHMLA_LIBRARY")
    parser.add_argument("--replays", type=int, default=7)
    parser.add_argument("--rest", type=float, default=20, metavar="MS", help="idle time before the replays that rest")
    parser.add_argument("--device", type=int, default=0, help="CUDA device (default 0)")
    options = parser.parse_args()
    print("# family: mla_decode")
    if not options.library:
        print("flashmla_mla_decode.py: no library (FLASHMLA_LIBRARY, --library): nothing is measured", file=sys.stderr)
        print("peer\tcase\tms\terr")
        return
    import torch

    library = ctypes.CDLL(options.library)
    torch.cuda.set_device(options.device)
    l2_bytes = torch.cuda.get_device_properties(options.device).L2_cache_size
    print("# note: flashmla-live: FlashMLA's dense decode kernels (FLASHMLA_LIBRARY), metadata made ahead, device time by graph",
          f"replay, beyond 150 operations a byte after {options.rest:g} ms of rest and an untimed replay, on the machine of this run, torch {torch.__version__}")
    print("peer\tcase\tms\terr")
    for shape in read_shapes(options.list):
        peer = Peer(torch, library, shape, l2_bytes)
        error = peer.error()
        calls = [lambda cache=cache: peer.run(cache) for cache in peer.caches]
        ms = graph_ms(torch, calls, max(len(calls), 20), options.replays,
                      options.rest if intensity(shape) > 150 else 0)
        print(f"flashmla-live\t{case_name(shape)}\t{ms:.6f}\t{error:.2e}", flush=True)
        del peer, calls
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
