# SPDX-License-Identifier: MIT
"""The road of CUDA tensors, on the fake libcuda of the C tests: it books launches and runs nothing.

$ATTNGEN_FAKE_CUDA names it (build/tests/libfake_cuda.so). A process of its own, because the driver is opened once.
"""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not os.environ.get("ATTNGEN_FAKE_CUDA"),
                                reason="needs $ATTNGEN_FAKE_CUDA, the C tests' libfake_cuda.so")

PRELUDE = '''
import ctypes, os
import numpy as np
from attngen import _arrays, _ffi

fake = ctypes.CDLL(os.environ["GEN_LIBCUDA"])
fake.fake_cuda_get.restype = ctypes.POINTER(ctypes.c_int)
calls = lambda name: fake.fake_cuda_calls(name.encode())
launches = lambda: calls("cuLaunchKernel") + calls("cuLaunchKernelEx")


class Cuda:
    """An array that says it lies on a CUDA device."""

    def __init__(self, array, ordinal=0):
        self.array, self.ordinal = array, ordinal

    def __dlpack__(self, **_):
        capsule = self.array.__dlpack__()
        tensor = _arrays._DLTensor.from_address(_arrays._pointer_of(capsule, b"dltensor"))
        tensor.device_type, tensor.device_id = 2, self.ordinal
        return capsule

    def __dlpack_device__(self):
        return (2, self.ordinal)


def la(ordinal=0, batch=2):
    q, o = (Cuda(np.ones((batch, 2, 128), np.float16), ordinal) for _ in range(2))
    state, decay = np.zeros((batch, 2, 128, 128), np.float32), np.zeros(2, np.float32)
    call = _ffi.function("la_decode")
    return call(0, 0, None, q, q, q, o, Cuda(decay, ordinal), Cuda(state, ordinal), None, None, True, False, None, None)


def fails(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"
'''


def run(code):
    environment = dict(os.environ, GEN_LIBCUDA=os.environ["ATTNGEN_FAKE_CUDA"])
    done = subprocess.run([sys.executable, "-c", PRELUDE + code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_call_is_one_launch_and_loads_its_kernel_once():
    assert run("la(); la(); la(); print(launches(), calls('cuLibraryLoadData'), calls('cuCtxPushCurrent'))") == "3 1 0"


def test_the_context_of_the_tensors_is_current_for_the_call_and_not_after():
    code = '''
import struct
cuDevice = ctypes.c_int()
def current():
    return ("none" if fake.cuCtxGetDevice(ctypes.byref(cuDevice)) else cuDevice.value)
fake.cuCtxSetCurrent(None)
la()
print(current(), launches(), calls("cuDevicePrimaryCtxRetain"), calls("cuCtxPushCurrent"), calls("cuCtxPopCurrent"))
la()
print(current(), launches(), calls("cuDevicePrimaryCtxRetain"), calls("cuCtxPushCurrent"), calls("cuCtxPopCurrent"))
'''
    assert run(code).splitlines() == ["none 1 1 1 1", "none 2 1 2 2"]


def test_a_failure_leaves_no_context_behind():
    code = '''
fake.cuCtxSetCurrent(None)
q = np.ones((1, 70, 2, 64), np.float16)
x, f, b = Cuda(q), Cuda(np.zeros(q.shape, np.float32)), Cuda(np.ones((1, 70, 2), np.float32))
rest = (None,) * 9 + (0, 0, False, False, False, 0) + (None,) * 8 + (0,)
call = lambda workspace: _ffi.function("kda_prefill")(0, 0, workspace, x, x, x, f, b, x, *rest)
print(fails(lambda: call(Cuda(np.zeros(16, np.uint8)))))
print(fails(lambda: call(np.zeros(1 << 24, np.uint8))))
print(calls("cuCtxPushCurrent") - calls("cuCtxPopCurrent"), launches())
'''
    small, elsewhere, counts = run(code).splitlines()
    assert small.startswith("ValueError: kda_prefill: workspace has 16 bytes;") and counts == "0 0"
    assert elsewhere == "ValueError: kda_prefill: workspace is on another device than q"


def test_devices_that_are_not_there_are_refused():
    code = "for n in (3, 99): print(fails(lambda: la(ordinal=n)).splitlines()[0])"
    missing, far = run(code).splitlines()
    assert missing.startswith("RuntimeError") and "3" in missing
    assert far == "ValueError: la_decode: q is on cuda:99; allowed: 0 to 63"
