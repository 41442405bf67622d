# SPDX-License-Identifier: MIT
"""Loads libattngen and libattngen_tvmffi and finds their functions."""

import ctypes
import gc
import os
import pathlib
import sys
import threading

_lock = threading.Lock()
_module = None
_functions = {}

SELECT = 1 << 30  # flags: nothing is launched, the plan is returned as JSON
EXPLAIN = 1 << 29  # flags: nothing is launched, the text of gen_explain() is returned


def folder():
    """The folder of the shared libraries: $ATTNGEN_LIBRARY_DIR, else the package's own."""
    asked = os.environ.get("ATTNGEN_LIBRARY_DIR")
    return pathlib.Path(asked) if asked else pathlib.Path(__file__).parent / "lib"


def _import_tvm_ffi():
    # tvm_ffi imports torch where that is installed, which takes seconds. Who brings no torch tensor
    # does not wait for it; torch tensors that come later need nothing of what is left out here.
    if "tvm_ffi" in sys.modules or "torch" in sys.modules:
        import tvm_ffi

        return tvm_ffi
    sys.modules["torch"] = None
    try:
        import tvm_ffi
    finally:
        if sys.modules.get("torch", 0) is None:
            del sys.modules["torch"]
    return tvm_ffi


class _StreamType(type):
    def __instancecheck__(cls, x):
        driver = sys.modules.get("cuda.bindings.driver")
        return driver is not None and isinstance(x, driver.CUstream)


class _Driver:
    """What tvm_ffi asks of cuda.bindings.driver: whether an argument is a stream. Without that module none is."""

    class CUstream(metaclass=_StreamType):
        pass


def _import_without_driver():
    # tvm_ffi imports cuda.bindings, which comes with torch, to ask that one question: nearly half of its import.
    hidden = [name for name in ("cuda.bindings", "cuda.bindings.driver") if name not in sys.modules]
    if "tvm_ffi" in sys.modules or "cuda.bindings.driver" not in hidden:
        return _import_tvm_ffi()
    sys.modules.update(dict.fromkeys(hidden))
    try:
        tvm_ffi = _import_tvm_ffi()
    finally:
        for name in hidden:
            if sys.modules.get(name, 0) is None:
                del sys.modules[name]
    if getattr(tvm_ffi.core, "cuda_driver", 0) is None:
        tvm_ffi.core.cuda_driver = _Driver
    return tvm_ffi


def _import_in_one_go():
    # What an import makes stays, so the garbage collector looks for nothing among the many objects of
    # a process that has torch: 1 to 2 ms of 25.
    collects = gc.isenabled()
    gc.disable()
    try:
        return _import_without_driver()
    finally:
        if collects:
            gc.enable()


def _load():
    global _module
    with _lock:
        if _module is None:
            tvm_ffi = _import_in_one_go()
            where = folder()
            # By its SONAME, libattngen_tvmffi finds the library that is loaded here.
            names = [n for n in ("libattngen.so.0", "libattngen.so") if (where / n).exists()]
            if not names:
                raise ImportError(f"attngen: there is no libattngen.so in {where}")
            ctypes.CDLL(str(where / names[0]), ctypes.RTLD_GLOBAL)
            _module = tvm_ffi.load_module(str(where / "libattngen_tvmffi.so"))
    return _module


def function(name):
    """The function `name` of libattngen_tvmffi, which is loaded by the first call."""
    found = _functions.get(name)
    if found is None:
        found = _functions[name] = (_module or _load()).get_function(name)
    return found
