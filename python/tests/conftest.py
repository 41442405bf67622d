# SPDX-License-Identifier: MIT
import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture(params=["float16", "bfloat16"])
def dtype(request):
    import ml_dtypes

    return np.dtype(np.float16) if request.param == "float16" else np.dtype(ml_dtypes.bfloat16)


@pytest.fixture
def tolerance(dtype):
    """Of a result that is rounded once: half a unit in the last place, and a little for sums in float32."""
    return 6e-4 if dtype == np.float16 else 4e-3
