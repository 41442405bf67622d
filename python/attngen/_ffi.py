# SPDX-License-Identifier: MIT
"""Loads libattngen and libattngen_tvmffi and finds their functions."""

import ctypes
import os
import pathlib
import threading

from . import _tvm_ffi

_lock = threading.Lock()
_module = None
_functions = {}

SELECT = 1 << 30  # flags: nothing is launched, the plan is returned as JSON
EXPLAIN = 1 << 29  # flags: nothing is launched, the text of gen_explain() is returned


def folder():
    """The folder of the shared libraries: $ATTNGEN_LIBRARY_DIR, else the package's own."""
    asked = os.environ.get("ATTNGEN_LIBRARY_DIR")
    return pathlib.Path(asked) if asked else pathlib.Path(__file__).parent / "lib"


def _load():
    global _module
    with _lock:
        if _module is None:
            where = folder()
            # By its SONAME, libattngen_tvmffi finds the library that is loaded here.
            names = [n for n in ("libattngen.so.0", "libattngen.so") if (where / n).exists()]
            if not names:
                raise ImportError(f"attngen: there is no libattngen.so in {where}")
            ctypes.CDLL(str(where / names[0]), ctypes.RTLD_GLOBAL)
            _module = _tvm_ffi.load_module(str(where / "libattngen_tvmffi.so"))
    return _module


def function(name):
    """The function `name` of libattngen_tvmffi, which is loaded by the first call."""
    found = _functions.get(name)
    if found is None:
        found = _functions[name] = (_module or _load()).get_function(name)
    return found
