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


def _import_in_one_go():
    # What an import makes stays, so the garbage collector looks for nothing among the many objects of
    # a process that has torch: 1 to 2 ms of 25.
    collects = gc.isenabled()
    gc.disable()
    try:
        return _import_tvm_ffi()
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
