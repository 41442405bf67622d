#!/usr/bin/env python3
"""The errors of FlashAttention-3 on attn_fwd's hard cases, beside which `attngen bench numerics` sets ours.

    FA3_LIBRARY=libpeers.so python3 bench/peers/fa3_numerics.py > fa3.tsv
    attngen bench numerics --families attn_fwd --peer-file fa3.tsv

Inputs are not exchanged: they are drawn here again, bit for bit, from the generator of bench/common/util.c (a Weyl sequence through
a finalizer, and the method of Box and Muller), in the order of bench/common/buffers.c (q, k, v from seed 1). A row's case is the
name in shapes/attn_fwd_numerics.txt, '@' and a checksum of the inputs' bytes; the benchmark leaves a row out, with a
warning, whose checksum is not that of its own inputs. Errors are relative Frobenius errors of all rows against double
precision on the inputs as they are rounded, of "@unrounded" cases on the numbers rounded to fp16, as ours are.

The library has one C function, FlashAttention-3's dense forward kernel with its parameters filled in:
    int fa3_fwd(q, k, v, o, float *lse, int batch, heads, kv_heads, q_len, kv_len, head_dim, causal, is_e4m3, float scale,
                int *semaphore, int num_sms, cudaStream_t)
on tensors [batch, rows, heads, head_dim] of fp16 or e4m3, with o of fp16 or bf16, and head_dim 64 or 128. Without a library
nothing is measured. --checksums prints the cases' names with their checksums and needs neither torch nor a GPU; it is
slow beyond some thousands of keys.
"""
import argparse
import ctypes
import math
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PRESETS = {"batch": "1", "num_q_heads": "32", "q_len": "1024", "head_dim": "128", "dtype": "bf16", "causal": "no"}
DENSE = set(PRESETS) | {"num_kv_heads", "kv_len"}
KINDS = ("normal", "ones", "mean1")
SEED, STEP, FACTORS = 1, 0x9E3779B97F4A7C15, ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
PIECE, DRAW_ALL_BELOW = (1 << 18) - 8, 64 << 20  # bench/common/buffers.c, bench/verify/verify.c


def signed(x):
    """Of 64 bits, as torch has them."""
    return (x + (1 << 63)) % (1 << 64) - (1 << 63)


def shifted(x, by):
    """A logical shift of a signed number."""
    return (x >> by) & ((1 << (64 - by)) - 1)


def finalized(x, wrap):
    """What the generator makes of its state x."""
    for by, factor in FACTORS:
        x = wrap((x ^ shifted(x, by)) * signed(factor))
    return x ^ shifted(x, 31)


# Bits of the fraction, bias of the exponent, and the code of the greatest number.
FORMATS = {"e4m3": (3, 7, 0x7E), "e5m2": (2, 15, 0x7B), "fp16": (10, 15, 0x7BFF), "bf16": (7, 127, 0x7F7F)}


class Plain:
    """Arrays as lists, for --checksums."""

    def integers(self, seed, first, count):
        """Random numbers first, first + 1, ... of a seed."""
        return [finalized(signed(seed + STEP * (first + 1 + i)), signed) for i in range(count)]

    def normals(self, seed, first, count):
        """Standard normal numbers from the random numbers 2 first, 2 first + 1, ..."""
        u = [shifted(x, 11) * 2.0**-53 for x in self.integers(seed, 2 * first, 2 * count)]
        return [math.sqrt(-2 * math.log(1 - a)) * math.cos(6.283185307179586 * b) for a, b in zip(u[::2], u[1::2])]

    def map(self, function, values):
        return [function(x) for x in values]

    def repeated(self, values, count):
        return (values * (count // len(values) + 1))[:count]

    def encoded(self, values, dtype):
        """Bytes of the values rounded to nearest even."""
        bits, bias, top = FORMATS[dtype]
        size = 1 if dtype in ("e4m3", "e5m2") else 2
        out = bytearray()
        for x in values:
            exponent = max(math.frexp(x)[1] - 1 if x else 1 - bias, 1 - bias)
            whole = round(math.ldexp(abs(x), bits - exponent))
            code = min(whole + ((exponent + bias - 1) << bits), top)
            out += (code | (x < 0) << (8 * size - 1)).to_bytes(size, "little")
        return bytes(out)

    def checksum(self, tensors):
        data = b"".join(tensors)
        return sum((byte + 1) * weight for byte, weight in zip(data, self.integers(0, 0, len(data)))) % (1 << 64)


class Torch:
    """Arrays on the GPU. int64 wraps around there."""

    def __init__(self, torch):
        self.torch = torch
        self.dtypes = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "fp16": torch.float16, "bf16": torch.bfloat16}

    def integers(self, seed, first, count):
        at = self.torch.arange(first + 1, first + 1 + count, dtype=self.torch.int64, device="cuda")
        return finalized(at * signed(STEP) + seed, lambda x: x)

    def normals(self, seed, first, count):
        u = shifted(self.integers(seed, 2 * first, 2 * count), 11).double() * 2.0**-53
        return (-2 * (1 - u[::2]).log()).sqrt() * (6.283185307179586 * u[1::2]).cos()

    def map(self, function, values):
        return function(values)

    def repeated(self, values, count):
        return values.repeat(count // len(values) + 1)[:count]

    def encoded(self, values, dtype):
        # A conversion from double goes by way of float and rounds twice; of numbers of the format it is exact.
        bits, bias, _ = FORMATS[dtype]
        exponent = (self.torch.frexp(values).exponent.long() - 1).clamp(min=1 - bias) - bits
        unit = ((exponent + 1023) << 52).view(self.torch.float64)  # 2^exponent, whatever a power's accuracy
        return ((values / unit).round() * unit).float().to(self.dtypes[dtype])

    def checksum(self, tensors):
        first = total = 0
        for tensor in tensors:
            data = tensor.view(self.torch.uint8)
            total += ((data.long() + 1) * self.integers(0, first, len(data))).sum().item()
            first += len(data)
        return total % (1 << 64)


def read_cases(path):
    """The cases of a list that this program can draw, as dictionaries."""
    with open(path) as lines:
        for line in lines:
            name, _, words = line.split("#")[0].partition(":")
            words = words.replace(",", " ").split()
            controls = [w for w in words if w.startswith("@")]
            given = dict(w.split("=", 1) for w in words if not w.startswith("@"))
            case = dict(PRESETS, **given)
            case.setdefault("num_kv_heads", case["num_q_heads"])
            case.setdefault("kv_len", case["q_len"])
            kind = [c[6:] for c in controls if c.startswith("@data=")] or ["normal"]
            known = {"@every", "@unrounded"} | {"@data=" + k for k in KINDS}
            if words and set(given) <= DENSE and set(controls) <= known and case["causal"] == "no":
                yield dict(case, name=name.strip(), kind=kind[0], unrounded="@unrounded" in controls)


def sizes(case):
    return (int(case[n]) for n in ("batch", "num_q_heads", "num_kv_heads", "q_len", "kv_len", "head_dim"))


def draw(arrays, case):
    """q, k and v before they are rounded, flat."""
    batch, heads, kv_heads, q_len, kv_len, dim = sizes(case)
    counts = (batch * q_len * heads * dim, batch * kv_len * kv_heads * dim, batch * kv_len * kv_heads * dim)
    size = 1 if case["dtype"] in ("e4m3", "e5m2") else 2
    cycle = size * sum(counts) > DRAW_ALL_BELOW - 65536  # the other tensors and the guards take some kilobytes
    drawn, out = 0, []
    for name, count in zip("qkv", counts):
        own = min(count, PIECE) if cycle else count
        if name == "v" and case["kind"] == "ones":
            out.append(arrays.repeated(arrays.map(lambda x: x * 0 + 1.0, arrays.normals(SEED, 0, 1)), count))
            continue
        values = arrays.normals(SEED, drawn, own)
        drawn += own
        if name == "v" and case["kind"] == "mean1":
            values = arrays.map(lambda x: x + 1, values)
        out.append(arrays.repeated(values, count))
    return out


def error(torch, o, q, k, v):
    """Of all rows, head by head; q, k and v are [batch, rows, heads, head_dim]."""
    difference = reference = 0.0
    group = q.shape[2] // k.shape[2]
    for b in range(q.shape[0]):
        for h in range(q.shape[2]):
            scores = q[b, :, h].double() @ k[b, :, h // group].double().T / math.sqrt(q.shape[3])
            expected = scores.softmax(-1) @ v[b, :, h // group].double()
            difference += (o[b, :, h].double() - expected).square().sum().item()
            reference += expected.square().sum().item()
    return math.sqrt(difference / reference)


def measure(torch, arrays, library, case):
    """The checksum of a case's inputs and the peer's error."""
    batch, heads, kv_heads, q_len, kv_len, dim = sizes(case)
    fp8 = case["dtype"] == "e4m3"
    drawn = draw(arrays, case)
    inputs = [arrays.encoded(x, case["dtype"]) for x in drawn]
    checksum = arrays.checksum(inputs)

    def shaped(flat):
        return [x.view(batch, rows, count, dim) for x, rows, count in zip(flat, (q_len, kv_len, kv_len), (heads, kv_heads, kv_heads))]

    q, k, v = shaped(inputs)
    o = torch.full((batch, q_len, heads, dim), math.nan, device="cuda", dtype=torch.bfloat16 if fp8 else torch.float16)
    lse = torch.empty(batch, heads, q_len, device="cuda")
    semaphore = torch.zeros(64, device="cuda", dtype=torch.int32)
    sms = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (q, k, v, o, lse)]
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    status = library.fa3_fwd(*pointers, batch, heads, kv_heads, q_len, kv_len, dim, 0, int(fp8), ctypes.c_float(1 / math.sqrt(dim)),
                             ctypes.c_void_p(semaphore.data_ptr()), sms, stream)
    if status:
        raise RuntimeError(f"{case['name']}: fa3_fwd returns {status}")
    torch.cuda.synchronize()
    exact = shaped([arrays.encoded(x, "fp16") for x in drawn]) if case["unrounded"] else (q, k, v)
    return checksum, error(torch, o, *exact)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", default=os.path.join(HERE, "..", "shapes", "attn_fwd_numerics.txt"))
    parser.add_argument("--library", default=os.environ.get("FA3_LIBRARY"), help="default: $FA3_LIBRARY")
    parser.add_argument("--device", type=int, default=0, help="CUDA device (default 0)")
    parser.add_argument("--checksums", action="store_true", help="the cases' names and checksums alone")
    options = parser.parse_args()
    cases = list(read_cases(options.list))
    if options.checksums:
        arrays = Plain()
        for case in cases:
            inputs = [arrays.encoded(x, case["dtype"]) for x in draw(arrays, case)]
            print(f"{case['name']}@{arrays.checksum(inputs):016x}")
        return
    print("# family: attn_fwd")
    if not options.library:
        print("fa3_numerics.py: no library (FA3_LIBRARY, --library): nothing is measured", file=sys.stderr)
        return
    import torch

    torch.cuda.set_device(options.device)
    torch.zeros(1, device="cuda")  # the context that the library works in
    library = ctypes.CDLL(options.library)
    print("# note: fa3: FlashAttention-3's forward kernel (FA3_LIBRARY), one split, without pack_gqa, torch", torch.__version__)
    print("peer\tcase\tms\terr")
    for case in cases:
        if case["dtype"] in ("fp16", "e4m3") and case["head_dim"] in ("64", "128"):
            checksum, err = measure(torch, Torch(torch), library, case)
            print(f"fa3\t{case['name']}@{checksum:016x}\t-\t{err:.4e}", flush=True)


if __name__ == "__main__":
    main()
