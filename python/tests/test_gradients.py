# SPDX-License-Identifier: MIT
"""KDA's gradients are as exact as FLA's: errors against float64 on the same inputs, on a GPU."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("attngen")
torch = pytest.importorskip("torch", reason="needs torch 2.10 or newer (pip install torch)")

MORE = 1.1  # of FLA's error
ROUNDING = 3e-4  # what a result in 16 bits may be off besides, where FLA's error is rounding alone
A_LOG = 0.02  # a sum of terms of both signs over all tokens, of eight heads together (docs/numerics.md)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("v_heads", [8, 16])
def test_errors_are_not_above_those_of_fla(v_heads):
    pytest.importorskip("fla.ops.kda", reason="needs flash-linear-attention")
    command = [sys.executable, os.path.join(os.path.dirname(__file__), "gradients.py"), "--v-heads", str(v_heads)]
    run = subprocess.run(command, env=dict(os.environ, FLA_ATTNGEN="0"), capture_output=True, text=True, check=True)
    found = json.loads(run.stdout.splitlines()[-1])
    if "ATTNGEN_GRADIENTS" in os.environ:
        with open(os.environ["ATTNGEN_GRADIENTS"], "a") as out:
            print(json.dumps({"v_heads": v_heads, **found}), file=out)
    above = {}
    for kind, errors in found.items():
        for name, (ours, theirs) in errors.items():
            allowed = max(A_LOG, MORE * theirs) if name == "A_log" else MORE * theirs + ROUNDING
            if not ours <= allowed:
                above[kind, name] = (ours, theirs)
    assert not above
