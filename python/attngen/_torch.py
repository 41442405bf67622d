# SPDX-License-Identifier: MIT
"""What the families ask of torch: outputs, calls on the current stream, and custom operators for torch.compile."""

import threading

import torch

from . import _ffi
from ._spec import SPEC, schema, written

if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
    raise ImportError(f"attngen: torch {torch.__version__} has no DLPack exchange API; torch 2.10 or newer does")

_functions = {}
_lock = threading.Lock()
_INDEX = (torch.int32, torch.int64)
_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def like(x):
    return None if x is None else torch.empty_like(x, memory_format=torch.contiguous_format)


def zeros_like(x):
    return None if x is None else torch.zeros_like(x, memory_format=torch.contiguous_format)


def empty(like, shape):
    return like.new_empty(shape)


def fp32(like, shape):
    return like.new_empty(shape, dtype=torch.float32)


def named(like, shape, dtype):
    return like.new_empty(shape, dtype=_DTYPES[dtype])


def index(x):
    """cu_seqlens and the like, which the calls take in both widths."""
    return x if x is None or x.dtype in _INDEX else x.to(torch.int32)


def int32(x):
    """Of int64 a copy on the device: the kernels take int32."""
    return x if x is None or x.dtype is torch.int32 else x.to(torch.int32)


def longest(cu_seqlens):
    """Of sequences that the host knows; None: not known, and nothing is read back to find out."""
    if torch.compiler.is_compiling() or cu_seqlens.device.type != "cpu" or cu_seqlens.numel() < 2:
        return None
    return max(0, int(cu_seqlens.diff().max()))


def give(x):
    return x


def _refuse_gradients(name, args):
    for x in args:
        if isinstance(x, torch.Tensor) and x.requires_grad:
            raise RuntimeError(f"attngen.{name} has no backward, and one of its tensors requires a gradient: call it "
                               "under torch.no_grad() or torch.inference_mode(), or detach the tensor"
                               + ("; attngen.kda has gradients" if name == "kda_prefill" else ""))


def call(name, *args):
    if torch.is_grad_enabled():
        _refuse_gradients(name, args)
    if torch.compiler.is_compiling():
        define_operators()
        return getattr(torch.ops.attngen, name)(*args)
    function = _functions.get(name)
    if function is None:
        function = _functions[name] = _ffi.function(name)
    return function(*args)


def kda(*args):
    """kda_prefill with gradients."""
    from ._autograd import kda as run

    return run(*args)


def _define(name):
    @torch.library.custom_op(f"attngen::{name}", mutates_args=written(name), schema=schema(name))
    def operator(*args):
        _ffi.function(name)(*args)

    @operator.register_fake
    def _(*args):
        return None


def define_operators():
    """Defines torch.ops.attngen. That takes torch a third of a second, so it waits for a call that is compiled."""
    with _lock:
        if not hasattr(torch.ops.attngen, "kda_prefill"):
            for name in SPEC:
                _define(name)
    return True


# The compiler runs the function instead of tracing it. This is what torch.compiler.assume_constant_result()
# does, but for importing the compiler, which takes seconds.
define_operators._dynamo_marked_constant = True
