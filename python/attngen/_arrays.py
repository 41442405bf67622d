# SPDX-License-Identifier: MIT
"""What the families ask of NumPy's and JAX's arrays: outputs beside inputs, and calls over DLPack."""

import ctypes
import sys

import numpy as np

from . import _ffi

_kinds = {}  # by the type of an array


def kind_of(array):
    """The functions for arrays like this one: of NumPy, of JAX or of torch."""
    return _kinds.get(type(array)) or _find(array)


def _find(array):
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        from . import _torch as kind
    elif isinstance(array, np.ndarray):
        kind = Numpy
    elif type(array).__module__.split(".")[0] in ("jax", "jaxlib"):
        kind = Jax
    else:
        raise TypeError(f"attngen: an array of torch, NumPy or JAX is wanted, not {type(array).__name__}")
    _kinds[type(array)] = kind
    return kind


# Types that NumPy's own DLPack does not know, by the names that ml_dtypes gives them: DLPack's code,
# and the plain type of their size.
_FOREIGN = {"bfloat16": (4, np.uint16), "float8_e4m3fn": (10, np.uint8), "float8_e5m2": (12, np.uint8)}


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16)]


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class _Foreign:
    """An array of one of these types, as DLPack has it."""

    def __init__(self, array, code, plain):
        self._array, self._code = array.view(plain), code

    def __dlpack__(self, **_):
        capsule = self._array.__dlpack__()
        _DLTensor.from_address(_pointer_of(capsule, b"dltensor")).code = self._code
        return capsule

    def __dlpack_device__(self):
        return (1, 0)


def _pass(x):
    """What TVM FFI takes for a NumPy array; all else as it is."""
    if not isinstance(x, np.ndarray):
        return x
    if not x.flags.writeable:
        x = x.copy()  # NumPy does not export what may not be written
    foreign = _FOREIGN.get(x.dtype.name)
    return _Foreign(x, *foreign) if foreign else x


class Numpy:
    """Arrays on the CPU: the reference backend."""

    @staticmethod
    def like(x):
        """An output beside x; None, of which the call will complain, for None."""
        return None if x is None else np.empty(x.shape, x.dtype)

    @staticmethod
    def zeros_like(x):
        return None if x is None else np.zeros(x.shape, x.dtype)

    @staticmethod
    def empty(like, shape):
        return np.empty(shape, like.dtype)

    @staticmethod
    def fp32(like, shape):
        return np.empty(shape, np.float32)

    @staticmethod
    def named(like, shape, dtype):
        if dtype == "bfloat16":
            import ml_dtypes

            dtype = ml_dtypes.bfloat16
        return np.empty(shape, dtype)

    @staticmethod
    def int32(x):
        return x if x is None or x.dtype == np.int32 else np.asarray(x, np.int32)

    @staticmethod
    def index(x):
        """cu_seqlens and the like, which the calls take in both widths."""
        return x if x is None or x.dtype in (np.int32, np.int64) else np.asarray(x, np.int32)

    @staticmethod
    def longest(cu_seqlens):
        """Of sequences that the host knows; None: not known."""
        return max(0, int(np.diff(np.asarray(cu_seqlens)).max(initial=0)))

    @staticmethod
    def call(name, *args):
        for x in args:
            if isinstance(x, np.ndarray) and not x.flags.writeable:
                _refuse_readonly(name, args)
                break
        return _ffi.function(name)(*map(_pass, args))

    @staticmethod
    def give(x):
        return x


def _refuse_readonly(name, args):
    from ._spec import SPEC

    for (argument, kind), x in zip(SPEC[name], args[3:]):
        if "!" in kind and isinstance(x, np.ndarray) and not x.flags.writeable:
            raise ValueError(f"{name}: {argument} is read-only, and the call writes it")


class Jax(Numpy):
    """JAX's arrays on the CPU. They do not change, so what a call updates is a NumPy array."""

    @staticmethod
    def int32(x):
        return Numpy.int32(None if x is None else np.asarray(x))

    @staticmethod
    def index(x):
        return Numpy.index(None if x is None else np.asarray(x))

    @staticmethod
    def call(name, *args):
        from ._spec import SPEC

        args = list(args)
        for i, x in enumerate(args):
            if type(x).__module__.split(".")[0] not in ("jax", "jaxlib"):
                continue
            argument, kind = SPEC[name][i - 3]
            if "!" in kind:
                raise ValueError(f"{name}: {argument} is an array of JAX, which does not change; give a NumPy array, "
                                 "which the call updates")
            if next(iter(x.devices())).platform != "cpu":
                raise ValueError(f"{name}: {argument} is an array of JAX on {x.devices()}; allowed here: the CPU. "
                                 "jax_tvm_ffi calls the functions of libattngen_tvmffi on JAX's own streams")
            args[i] = x.block_until_ready()
        return Numpy.call(name, *args)

    @staticmethod
    def give(x):
        import jax.numpy as jnp

        return None if x is None else jnp.asarray(x)
