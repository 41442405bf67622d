#!/bin/sh
# What a GPU has to show of KDA's training, in a few minutes: loss curves of 200 steps beside FLA's, gradients' errors beside
# FLA's, and FLA's own tests of chunk_kda through the backend, gradients included.
#
#     python/tests/kda_training.sh FLA_CHECKOUT OUT [PYTHON]
#
# PYTHON has attngen, torch, flash-linear-attention, pytest and, for JOBS processes (default: one a CPU), pytest-xdist; the
# checkout is of the version that is installed. FLA's kernels are compiled by JOBS processes first, into Triton's cache. OUT
# gets curves.json (lines of a width with both curves), gradients.json (errors, ours and FLA's) and fla_suite.txt (the outcome
# of each test, and what attngen served in it); where tests fail, fla_alone.txt has them with FLA's own kernels. The exit
# status is 1 where a part failed; the others run all the same.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 2 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
checkout=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
python=${3:-python3}
case $python in */*) python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python") ;; esac
jobs=${JOBS:-$(nproc)}
status=0
rm -f "$out/curves.json" "$out/gradients.json"
cd "$here"
ATTNGEN_CURVES="$out/curves.json" "$python" -m pytest -q -rs -p no:cacheprovider test_training.py || status=1
ATTNGEN_GRADIENTS="$out/gradients.json" "$python" -m pytest -q -rs -p no:cacheprovider test_gradients.py || status=1
served='test_chunk and not D60 and not D100 and not D256 and not size32 and not flash and not npu and not intermediate'
# Heads of 60, 100 and 256, chunks of 32 and intermediate states take FLA's kernels.
suite() {
    sh "$here/fla_suite.sh" "$checkout" "$python" -n "$jobs" -v --durations=0 -k "$served"
}
if ! suite >"$out/fla_suite.txt" 2>&1; then
    status=1
    grep -E '^(FAILED|ERROR|E  )' "$out/fla_suite.txt" || tail -n 20 "$out/fla_suite.txt"
    FLA_ATTNGEN=0 suite >"$out/fla_alone.txt" 2>&1 || true # which fail without attngen, too
    grep -E '^(FAILED|ERROR)' "$out/fla_alone.txt" | sed 's/^/without attngen: /' || true
fi
tail -n 1 "$out/fla_suite.txt"
exit $status
