# SPDX-License-Identifier: MIT
"""Imports of tvm_ffi what loads a module and calls its functions: a third of what importing all of it takes.

The rest follows at the first name of `tvm_ffi` that is missing, for other code that imports it.
"""

import contextlib
import ctypes
import gc
import importlib.machinery
import pathlib
import sys
import threading
import types

_NAME = "tvm_ffi"
_PARTS = ("core", "_dtype", "error", "module")
_completing = threading.RLock()


class _Part(types.ModuleType):
    """tvm_ffi without what its __init__.py makes, which runs at the first name that is missing."""

    def __getattr__(self, name):
        self.complete()
        return getattr(self, name)

    def complete(self):
        with _completing:
            if type(self) is _Part:
                self.__class__ = types.ModuleType
                self.__loader__.exec_module(self)


class _Finder:
    """Finds tvm_ffi, whose import then ends early. As one of sys.meta_path, so that Python's locks are held."""

    def __init__(self):
        self.loader = None

    def find_spec(self, name, path=None, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path) if name == _NAME else None
        if spec is None or not spec.submodule_search_locations:
            return None
        self.loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self.loader
        try:
            ctypes.CDLL(str(pathlib.Path(module.__path__[0]) / "lib" / "libtvm_ffi.so"), ctypes.RTLD_GLOBAL)
            for part in _PARTS:
                importlib.import_module(f"{_NAME}.{part}")
            module.load_module = module.module.load_module
        except (ImportError, OSError, AttributeError):
            self.loader.exec_module(module)  # another version is made otherwise
        else:
            module.__class__ = _Part


class _StreamType(type):
    def __instancecheck__(cls, x):
        driver = sys.modules.get("cuda.bindings.driver")
        return driver is not None and isinstance(x, driver.CUstream)


class _Driver:
    """What tvm_ffi asks of cuda.bindings.driver: whether an argument is a stream. Without that module none is."""

    class CUstream(metaclass=_StreamType):
        pass


@contextlib.contextmanager
def _hidden(*names):
    """An import of these modules fails, unless they are there already."""
    names = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(names))
    try:
        yield
    finally:
        for name in names:
            if sys.modules.get(name, 0) is None:
                del sys.modules[name]


@contextlib.contextmanager
def _uncollected():
    """What an import makes stays, so the garbage collector looks for nothing among the many objects of a process
    that has torch: 1 to 2 ms of 25."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _get():
    if _NAME in sys.modules:
        return importlib.import_module(_NAME)
    finder = _Finder()
    # tvm_ffi imports torch where that is installed, which takes seconds: who brings no torch tensor does not wait
    # for it, and torch tensors that come later need nothing of what is left out here. It imports cuda.bindings,
    # which comes with torch, to ask whether an argument is a stream: nearly half of its import.
    with _uncollected(), _hidden("torch", "cuda.bindings", "cuda.bindings.driver"):
        sys.meta_path.insert(0, finder)
        try:
            tvm_ffi = importlib.import_module(_NAME)
        finally:
            sys.meta_path.remove(finder)
    if getattr(tvm_ffi.core, "cuda_driver", 0) is None:
        tvm_ffi.core.cuda_driver = _Driver
    return tvm_ffi


def load_module(path):
    """tvm_ffi.load_module(path)."""
    tvm_ffi = _get()
    try:
        return tvm_ffi.load_module(path)
    except (AttributeError, TypeError):
        if type(tvm_ffi) is not _Part:
            raise
        tvm_ffi.complete()  # another version needs more of it for a call
        return tvm_ffi.load_module(path)
