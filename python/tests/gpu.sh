#!/bin/sh
# What needs a GPU and torch, from a wheel that was built before, without a network:
#
#     python/tests/gpu.sh [WHEEL]     default: the newest in dist
#
# PYTHON     with torch 2.10 or newer and apache-tvm-ffi, pytest, numpy; ml_dtypes and flash-linear-attention where
#            they are there; default: python3
# WHEELS     a folder of wheels to install from (apache-tvm-ffi, fla-core, pytest, ...); default: none
# FLA_TESTS  a checkout of flash-linear-attention at the installed version: its own tests run through the backend
# OUT        where the results of the benchmark go; default: none, and no benchmark
#
# Also checks that the first call neither compiles nor touches files outside of the package, where strace is there.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
wheel=${1:-$(ls -t "$here"/../../dist/attngen-*.whl | head -n 1)}
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset PYTHONPATH ATTNGEN_LIBRARY_DIR ATTNGEN_PRODUCT_PATH

# Beside what Python has, and in front of it.
site=$work/site
export PYTHONPATH="$site"
install="$python -m pip install --quiet --no-index --target $site ${WHEELS:+--find-links $WHEELS}"
for package in apache-tvm-ffi pytest ml_dtypes einops; do
    module=$(echo "$package" | sed 's/apache-tvm-ffi/tvm_ffi/')
    "$python" -c "import $module" 2>/dev/null || $install "$package" || echo "gpu.sh: no $package" >&2
done
"$python" -c "import fla.backends" 2>/dev/null || $install --no-deps fla-core flash-linear-attention ||
    echo "gpu.sh: no flash-linear-attention: its tests skip" >&2
$install --no-deps "$wheel"
wheel_at=$("$python" -c "import attngen; print(attngen.__file__)")
case $wheel_at in "$site"/*) ;; *) echo "gpu.sh: attngen comes from $wheel_at" >&2; exit 1 ;; esac
cd "$work" # not the source tree: what is tested is what the wheel holds

status=0
"$python" -m pytest -q -rs -p no:cacheprovider "$here" || status=1

first="import time, torch; torch.zeros(1, device='cuda').sum().item(); torch.cuda.synchronize(); a = time.perf_counter()
import attngen
x = torch.ones(1, 64, 4, 128, device='cuda', dtype=torch.bfloat16); b = torch.ones(1, 64, 4, device='cuda')
m = time.perf_counter(); o, _ = attngen.kda_prefill(x, x, x, -x, b, use_qk_l2norm_in_kernel=True); torch.cuda.synchronize()
print(f'first call: {(time.perf_counter() - m) * 1e3:.1f} ms, with the import {(time.perf_counter() - a) * 1e3:.1f} ms')"
"$python" -c "$first" || status=1
if command -v strace >/dev/null; then
    strace -f -e trace=execve,openat -o "$work/trace" "$python" -c "$first" >/dev/null || status=1
    # What runs, and what is opened to be written, but for the driver's devices and the process's own files.
    grep -E 'execve\(|O_WRONLY|O_RDWR|O_CREAT' "$work/trace" | grep -vE 'ENOENT|"/dev/|"/proc/|^[0-9]+ +execve\("[^"]*/python[0-9.]*"' |
        tee "$work/touched"
    [ -s "$work/touched" ] && { echo "gpu.sh: the first call ran or wrote what stands above" >&2; status=1; }
fi

if [ -n "${FLA_TESTS:-}" ]; then
    "$here/fla_suite.sh" "$FLA_TESTS" "$python" || status=1
fi
if [ -n "${OUT:-}" ]; then
    "$python" "$here/../../bench/python/python_calls.py" --results "$OUT" --commit "${COMMIT:--}" || status=1
fi
exit $status
