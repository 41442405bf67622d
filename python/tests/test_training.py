# SPDX-License-Identifier: MIT
"""A small KDA model learns as with FLA's kernels, and as with the definition: loss curves of the same weights and data."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("attngen")
torch = pytest.importorskip("torch", reason="needs torch 2.10 or newer (pip install torch)")

import training  # noqa: E402

SMALL = {"rows": 4, "length": 40, "layers": 1, "width": 64, "heads": 1, "v_heads": 2}


def without(name):
    """attngen.kda whose gradient of one input is lost."""
    def attention(**x):
        return training.attngen_kda(**{**x, name: x[name].detach()})

    return attention


def test_the_loss_falls_as_with_the_definition():
    expected = training.losses(training.definition_kda, 24, "cpu", **SMALL)
    found = training.losses(training.attngen_kda, 24, "cpu", **SMALL)
    assert expected[-1] < 0.9 * expected[0]
    assert training.apart(found, expected) < 1e-4
    for name in ("q", "k", "v", "g", "beta", "A_log", "dt_bias"):  # what a lost gradient does to the curve
        assert training.apart(training.losses(without(name), 24, "cpu", **SMALL), expected) > 3e-4, name


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("dim", [64, 128])
def test_the_loss_falls_as_with_fla(dim):
    pytest.importorskip("fla.ops.kda", reason="needs flash-linear-attention")
    curves = {}
    for name in ("attngen", "fla"):  # a process each: in one, attngen may be FLA's backend
        command = [sys.executable, training.__file__, name, "--dim", str(dim)]
        run = subprocess.run(command, env=dict(os.environ, FLA_ATTNGEN="0"), capture_output=True, text=True, check=True)
        curves[name] = json.loads(run.stdout.splitlines()[-1])
    if "ATTNGEN_CURVES" in os.environ:
        with open(os.environ["ATTNGEN_CURVES"], "a") as out:
            print(json.dumps({"dim": dim, **curves}), file=out)
    assert len(curves["fla"]) == 200 and curves["fla"][-1] < 0.8 * curves["fla"][0]
    assert training.apart(curves["attngen"], curves["fla"]) < 0.02
