"""The same step from Python: torch's tensors on a GPU, NumPy's arrays on the CPU.

    python decode.py [PRODUCT]

Without an argument the package's own product. With torch.cuda the call runs on torch's current stream and may be
captured in a CUDA graph.
"""

import sys

import attngen

BATCH, HEADS, DIM = 4, 8, 128


def tensors():
    """q, k, v, the zeroed states and the decays: on the GPU where torch finds one."""
    try:
        import torch
    except ImportError:
        torch = None
    if torch is not None and torch.cuda.is_available():
        torch.manual_seed(1)
        q, k, v = torch.rand(3, BATCH, HEADS, DIM, dtype=torch.bfloat16, device="cuda") - 0.5
        return q, k, v, torch.zeros(BATCH, HEADS, DIM, DIM, device="cuda"), torch.linspace(0.1, 0.8, HEADS).cuda()
    import numpy as np

    q, k, v = (np.random.default_rng(1).random((3, BATCH, HEADS, DIM)) - 0.5).astype(np.float16)
    return q, k, v, np.zeros((BATCH, HEADS, DIM, DIM), np.float32), np.linspace(0.1, 0.8, HEADS, dtype=np.float32)


def main():
    library = attngen.Library(sys.argv[1]) if len(sys.argv) > 1 else attngen
    q, k, v, state, decay = tensors()
    o = library.la_decode(q, k, v, state, decay, state_v_first=True)
    # States of zero: o = (q . k) v / sqrt(D).
    single = (lambda t: t.float().cpu().numpy()) if hasattr(o, "cpu") else (lambda a: a.astype("float32"))
    q, k, v, o = map(single, (q, k, v, o))
    expected = (q * k).sum(-1, keepdims=True) * v / DIM**0.5
    error = abs(o - expected).max()
    print(f"{type(state).__module__}: largest error {error:.2g}")
    return 0 if error < 5e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
