# SPDX-License-Identifier: MIT
"""What holds for all calls: errors, the cache of plans, threads, products, what is imported."""

import ast
import inspect
import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest

import attngen
from attngen import _ffi, _spec, families

FLOAT16 = np.float16


def la(batch=2, **changes):
    inputs = dict(q=np.ones((batch, 2, 64), FLOAT16), k=np.ones((batch, 2, 64), FLOAT16),
                  v=np.ones((batch, 2, 64), FLOAT16), state=np.zeros((batch, 2, 64, 64), np.float32),
                  decay=np.zeros(2, np.float32))
    inputs.update(changes)
    return attngen.la_decode(**inputs)


# ---- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes, error, words", [
    ({"k": np.ones((2, 3, 64), FLOAT16)}, ValueError, "k has shape [2, 3, 64]; its dimension 1 must be 2, as q has"),
    ({"k": np.ones((2, 2, 64), np.float64)}, ValueError, "k has dtype float64; allowed: float16"),
    ({"q": np.ones((2, 64), FLOAT16)}, ValueError, "q has shape [2, 64]"),
    ({"state": None}, TypeError, "state is None; a tensor is wanted"),
    ({"state": np.zeros((2, 2, 64, 32), np.float32)}, ValueError, "state is of 64 x 32; 64 x 64 is wanted"),
    ({"scale": "big"}, TypeError, "scale is a string; a float is wanted"),
    ({"flags": 1 << 20}, ValueError, "flags"),
    ({"slots": np.zeros(3, np.int32)}, ValueError, "slots has 3 entries; 2 are wanted"),
    ({"q": np.ones((2, 2, 128), FLOAT16)[..., ::2]}, ValueError, "q is not contiguous"),
    ({"out": np.zeros((2, 2, 64), np.float32)}, ValueError, "o has dtype float32; allowed: float16"),
    ({"decay": np.zeros(3, np.float32)}, ValueError, "num_decays"),
])
def test_errors_name_what_was_found_and_what_is_allowed(changes, error, words):
    with pytest.raises(error) as caught:
        la(**changes)
    assert words in str(caught.value)


def test_a_head_dimension_that_no_kernel_has_is_the_librarys_own_error():
    with pytest.raises(ValueError, match="head_dim = 32.*64, 128"):
        x = np.ones((1, 4, 1, 32), FLOAT16)
        attngen.kda_prefill(x, x, x, np.zeros(x.shape, np.float32), np.ones((1, 4, 1), np.float32))


def test_tensors_that_would_be_overrun_are_refused():
    x, f = np.ones((1, 200, 1, 64), FLOAT16), np.zeros((1, 200, 1, 64), np.float32)
    call, cu = _ffi.function("kda_chunk_h"), np.array([0, 100, 200], np.int32)
    for chunks, cu_seqlens, words in ((3, None, "h has 3 chunks; wanted are 4"), (0, cu, "h has 0 chunks")):
        with pytest.raises(ValueError, match=words):
            call(0, 0, None, x, x, x, f, None, np.zeros((chunks, 1, 64, 64), FLOAT16), x.copy(), None, cu_seqlens, None,
                 False)
    short = np.zeros((3, 1, 64, 64), np.float32)
    with pytest.raises(ValueError, match="initial_state has 3 states; 1 are wanted"):
        attngen.kda_prefill(x, x, x, f, np.ones((1, 200, 1), np.float32), initial_state=short)
    inputs = x, x, x, f, np.ones((1, 200, 1), np.float32), x.copy()
    states = np.zeros((2, 1, 64, 64), FLOAT16)
    with pytest.raises(ValueError, match="states has 2 chunks; 4 are wanted"):
        _ffi.function("kda_prefill")(0, 0, None, *inputs, None, None, None, None, states, None, None, None, None, 0, 0,
                                     False, False, False, 0, *(None,) * 8, 0)


def test_expanded_and_overlapping_batches_are_refused():
    with pytest.raises(ValueError, match="k has stride 0"):
        la(k=expanded(2, 2, 64))
    x, f = np.ones((2, 8, 1, 64), FLOAT16), np.zeros((2, 8, 1, 64), np.float32)
    with pytest.raises(ValueError, match="the batches of q lie 1024 elements apart; 512 are wanted"):
        attngen.kda_prefill(np.ones((2, 16, 1, 64), FLOAT16)[:, :8], x, x, f, np.ones((2, 8, 1), np.float32))
    with pytest.raises(ValueError, match="q has stride 0 in dimension 0"):
        attngen.attn_fwd(expanded(2, 8, 1, 64), x, x)


def expanded(*shape):
    """Stride 0 in the first dimension, and writeable, as NumPy's own broadcast is not."""
    whole = np.ones(shape[1:], FLOAT16)
    return np.lib.stride_tricks.as_strided(whole, shape, (0, *whole.strides), writeable=True)


def test_arrays_that_are_written_must_be_writeable():
    state = np.zeros((2, 2, 64, 64), np.float32)
    state.flags.writeable = False
    with pytest.raises(ValueError, match="la_decode: state is read-only"):
        la(state=state)
    q = np.ones((2, 2, 64), FLOAT16)
    q.flags.writeable = False
    assert la(q=q).shape == (2, 2, 64)


def test_other_arrays_are_a_type_error():
    with pytest.raises(TypeError, match="torch, NumPy or JAX.*list"):
        attngen.la_decode([1.0], None, None, None, None)


def test_wrong_numbers_of_arguments_and_handles_do_no_harm():
    call = _ffi.function("la_decode")
    for args in ((), (0,), (0, 0, None), (0,) * 40):
        with pytest.raises(TypeError, match="arguments are given"):
            call(*args)
    for handle in (-1, 64, 1 << 40):
        with pytest.raises(ValueError, match="library is"):
            _ffi.function("library_info")(handle)


def test_arguments_of_any_kind_are_errors_and_no_crash():
    rng = np.random.default_rng(3)
    shapes = [(), (0,), (1,), (2,), (3,), (2, 64), (1, 2, 64), (2, 2, 64), (1, 70, 2, 64), (2, 2, 64, 64), (70, 2, 64),
              (1, 2, 2, 64, 64), (1, 70, 2), (3, 64, 512), (2, 16, 512), (1, 0, 2, 64), (1, 70, 2, 63)]
    arrays = [np.zeros(s, d) for s in shapes for d in (FLOAT16, np.float32, np.int32, np.int64, np.bool_)]
    numbers = [None, 0, 1, -1, 2, 64, 1 << 20, 1 << 40, -(1 << 62), 0.5, float("nan"), float("inf"), True, "x", "",
               "a long string " * 50]
    seen = set()
    for name, spec in _spec.SPEC.items():
        call = _ffi.function(name)
        for _ in range(400):
            args = [arrays[rng.integers(len(arrays))] if "T" in kind and rng.random() < 0.9
                    else numbers[rng.integers(len(numbers))] for _, kind in spec]
            args = args[:rng.integers(len(args) + 1)] if rng.random() < 0.02 else args
            try:
                call(0, int(rng.choice([0, 1, 1 << 29, 1 << 30])), None, *args)
            except (ValueError, TypeError, RuntimeError) as error:
                seen.add(type(error))
    assert {ValueError, TypeError} <= seen


# ---- plans ---------------------------------------------------------------------------------------


def test_a_thread_keeps_the_plans_of_its_problems():
    hits = _ffi.function("plan_cache_hits")
    la(batch=3)
    before = hits()
    for _ in range(5):
        la(batch=3)
    assert hits() == before + 5
    la(batch=11)
    assert hits() == before + 5
    la(batch=3, flags=attngen.DETERMINISTIC)
    assert hits() == before + 5, "flags are of the problem"


def test_plans_of_two_libraries_are_two():
    other = attngen.Library(_default_product())
    hits = _ffi.function("plan_cache_hits")
    la(batch=5)
    before = hits()
    la(batch=5, library=other)
    assert hits() == before
    la(batch=5, library=other)
    assert hits() == before + 1


def test_threads_compute_what_one_does():
    rng = np.random.default_rng(1)
    cases = []
    for n in range(24):
        T = 1 + 7 * n % 80
        q, k, v = (rng.standard_normal((1, T, 2, 64)).astype(FLOAT16) for _ in range(3))
        g, beta = -rng.random((1, T, 2, 64)).astype(np.float32), rng.random((1, T, 2)).astype(np.float32)
        cases.append((q, k, v, g, beta))
    expected = [attngen.kda_prefill(*c, output_final_state=True, use_qk_l2norm_in_kernel=True) for c in cases]
    wrong = []

    def work(start):
        for i in range(len(cases)):
            n = (i + start) % len(cases)
            o, s = attngen.kda_prefill(*cases[n], output_final_state=True, use_qk_l2norm_in_kernel=True)
            if not (np.array_equal(o, expected[n][0]) and np.array_equal(s, expected[n][1])):
                wrong.append(n)
            try:
                attngen.la_decode(np.ones((1, 1, n + 1), FLOAT16), np.ones((1, 1, n), FLOAT16), None, None, None)
            except ValueError as error:
                if f"must be {n + 1}, as q has" not in str(error):
                    wrong.append(str(error))
            else:
                wrong.append("no error")

    threads = [threading.Thread(target=work, args=(5 * i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []


def test_an_output_over_an_input_is_refused():
    call = _ffi.function("la_decode")
    q, state, decay = np.ones((2, 2, 64), FLOAT16), np.zeros((2, 2, 64, 64), np.float32), np.zeros(2, np.float32)
    with pytest.raises(ValueError, match="la_decode: o, from .*, overlaps v, from .*; allowed: memory of its own"):
        call(0, 0, None, q.copy(), q.copy(), q, q, decay, state, None, None, True, False, None, None)
    assert (q == 1).all() and (state == 0).all()
    # A token's q, k, v and o may be columns of one row.
    fused = np.ones((2, 4, 2, 64), FLOAT16)
    call(0, 0, None, *(fused[:, i] for i in range(4)), decay, state, None, None, True, False, None, None)
    assert (state == 1).all() and (fused[:, :3] == 1).all()


@pytest.mark.parametrize("before", ["enable", "disable"])
def test_the_first_call_leaves_the_garbage_collector_as_it_was(before):
    import subprocess
    import sys

    code = f"import gc, attngen; gc.{before}(); attngen.Library(); print(gc.isenabled())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == str(before == "enable"), done.stderr


# ---- products, selection ---------------------------------------------------------------------------


def _default_product():
    import os

    asked = os.environ.get("ATTNGEN_PRODUCT_PATH")
    places = [_ffi.folder() / p for p in ("attngen.fatbin", "attngen/attngen.fatbin")]
    return next(p for p in ([pathlib.Path(asked)] if asked else places) if p.exists())


def test_a_library_of_a_path_is_the_same_product():
    library = attngen.Library(_default_product())
    assert library.info == attngen.Library().info
    assert library.info["version"] == attngen.__version__ and library.info["num_variants"] > 0
    assert library.la_decode.__doc__ == attngen.la_decode.__doc__
    q = np.ones((1, 1, 64), FLOAT16)
    state = np.zeros((1, 1, 64, 64), np.float32)
    assert library.la_decode(q, q, q, state, np.zeros(1, np.float32)).shape == q.shape
    assert (state == 1).all()


def test_several_products_are_one_library():
    path = _default_product()
    library = attngen.Library(path, path)
    assert library.info["num_variants"] == attngen.Library().info["num_variants"]
    assert library.info["digest"] == attngen.Library().info["digest"]
    with pytest.raises(ValueError, match="path is None"):
        attngen.Library(None, path)
    with pytest.raises(RuntimeError, match="none: cannot be opened"):
        attngen.Library(path, path.parent / "none")


_SAY = "import attngen; print(attngen.Library().info['num_variants'])"


def test_the_default_product_is_what_the_environment_names(tmp_path):
    """A list of files and folders; where it names none, the message says so."""
    import os
    import subprocess
    import sys

    def say(named):
        env = dict(os.environ, ATTNGEN_PRODUCT_PATH=named)
        done = subprocess.run([sys.executable, "-c", _SAY], env=env, capture_output=True, text=True)
        return done.stdout.strip() or done.stderr

    path = _default_product()
    expected = str(attngen.Library().info["num_variants"])
    os.symlink(path, tmp_path / "attngen-all.fatbin")
    assert say(f"{path}:{path}") == expected
    assert say(f"{tmp_path}") == expected
    assert "RuntimeError" in say(f"{path}:{tmp_path}/none") and "none: cannot be opened" in say(f"{path}:{tmp_path}/none")


def test_files_that_are_no_products_are_refused(tmp_path):
    with pytest.raises(RuntimeError, match="cannot be opened"):
        attngen.Library(tmp_path / "none")
    (tmp_path / "bad").write_bytes(b"no product" * 100)
    with pytest.raises(RuntimeError, match="bad"):
        attngen.Library(tmp_path / "bad")


def test_selection_needs_no_gpu_and_no_tensor():
    fields = dict(batch=64, num_qk_heads=64, num_v_heads=64, head_dim=128, dtype="bf16", layout="kv")
    text = attngen.explain("la_decode", device="cpu", **fields)
    assert "la_decode batch=64" in text and "reference" in text
    plan = attngen.select("la_decode", device="cpu", **fields)
    assert plan.launches == () and plan.variant is None
    try:
        plan = attngen.select("la_decode", device="h200", **fields)
    except ValueError as error:  # of a product without kernels for that GPU
        assert "la_decode" in str(error)
    else:
        assert plan.variant.startswith("la_decode_bf16_d128_kv__") and plan.predicted_us > 0
        assert plan.variant in attngen.explain("la_decode", device="h200", **fields)


@pytest.mark.parametrize("call, words", [
    (lambda: attngen.select("la", device="h200"), "'la' is no family; allowed: attn_fwd"),
    (lambda: attngen.select("la_decode", device="h2000"), 'unknown device "h2000"'),
    (lambda: attngen.select("la_decode", device="h200", heads=3), "'heads' is no field of la_decode; allowed"),
    (lambda: attngen.select("la_decode", device="h200", dtype="bf17"), "dtype is 'bf17'"),
    (lambda: attngen.explain("la_decode", device="h200", batch=1 << 40), "batch is 1099511627776"),
])
def test_selection_says_what_is_wrong(call, words):
    with pytest.raises(ValueError) as caught:
        call()
    assert words in str(caught.value)


def test_selection_takes_what_a_call_would():
    q = np.ones((4, 2, 64), FLOAT16)
    state = np.ones((4, 2, 64, 64), np.float32)
    text = attngen.explain("la_decode", q, q, q, state, np.zeros(2, np.float32), device="h20")
    assert "batch=4 num_qk_heads=2" in text and "H20" in text and (state == 1).all()
    assert attngen.select("la_decode", q, q, q, state, np.zeros(2, np.float32)).why == "the reference on the CPU"


# ---- the package -------------------------------------------------------------------------------------


def run(code):
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_numpy_does_not_import_torch():
    code = ("import sys, numpy as np, attngen; q = np.ones((1, 1, 64), np.float16); "
            "attngen.la_decode(q, q, q, np.zeros((1, 1, 64, 64), np.float32), np.zeros(1, np.float32)); "
            "print('torch' in sys.modules, 'jax' in sys.modules)")
    assert run(code) == "False False"


def test_the_stub_has_the_signatures_of_the_functions():
    tree = ast.parse((pathlib.Path(attngen.__file__).parent / "__init__.pyi").read_text())
    stubs = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    for name in [n for n in attngen.__all__ if inspect.isfunction(getattr(attngen, n))]:
        a = stubs[name].args
        found = [x.arg for x in [*a.args, a.vararg, *a.kwonlyargs, a.kwarg] if x]
        assert found == list(inspect.signature(getattr(attngen, name)).parameters), name
    assert {n.name for n in tree.body if isinstance(n, ast.ClassDef)} >= {"Library", "Plan"}


def test_functions_document_shapes_dtypes_and_results():
    for name, family in families.ALL.items():
        assert "Returns" in family.__doc__ and "[" in family.__doc__ and "float" in family.__doc__, name


def test_the_schemas_name_what_a_call_writes():
    assert set(_spec.SPEC) == set(families.ALL)
    assert _spec.written("la_decode") == ("workspace", "o", "state")
    assert "Tensor(a2!) state" in _spec.schema("la_decode") and _spec.schema("la_decode").endswith("-> ()")


def _after(code):
    """The words that a process prints which runs this; whole() says whether all of tvm_ffi was imported."""
    return run(f"import sys\ndef whole(): return 'tvm_ffi.dataclasses' in sys.modules\n{code}").split()


def test_tvm_ffi_is_whole_for_others():
    assert _after("""
import attngen
attngen.Library()
before = whole()
import tvm_ffi
print(before, whole(), tvm_ffi.Array([1, 2])[1], whole(), tvm_ffi.core.Function is tvm_ffi.Function,
      attngen.Library().info["num_variants"] > 0)
""") == ["False", "False", "2", "True", "True", "True"]
    assert _after("""
import attngen
attngen.Library()
from tvm_ffi import Array
import tvm_ffi.structural
print(whole(), Array([3])[0])
""") == ["True", "3"]


@pytest.mark.parametrize("parts", ["_tvm_ffi._PARTS + ('no_such_part',)", "('core', 'error', 'module')"])
def test_a_version_of_tvm_ffi_that_is_made_otherwise_is_imported_whole(parts):
    assert _after(f"""
import attngen
from attngen import _tvm_ffi
_tvm_ffi._PARTS = {parts}
print(attngen.Library().info["num_variants"] > 0, whole())
""") == ["True", "True"]


def test_tvm_ffi_knows_streams_of_cuda_bindings_that_come_later():
    pytest.importorskip("cuda.bindings")
    code = '''
import sys, attngen
attngen._ffi.function("open")
import tvm_ffi
assert "cuda.bindings.driver" not in sys.modules and "cuda.bindings" not in sys.modules
echo = tvm_ffi.convert(lambda x: x)
echo(3), echo(True), echo(0.5), echo("x")
from cuda.bindings import driver
stream = type("Stream", (driver.CUstream,), {})(64)  # a type that tvm_ffi has not seen
print(isinstance(stream, tvm_ffi.core.cuda_driver.CUstream), isinstance(3, tvm_ffi.core.cuda_driver.CUstream),
      echo(driver.CUstream(64)).value)
'''
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.split() == ["True", "False", "64"], done.stderr
