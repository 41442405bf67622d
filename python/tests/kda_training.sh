#!/bin/sh
# What a GPU has to show of KDA's training, in a few minutes: loss curves of 200 steps beside FLA's, gradients' errors beside
# FLA's, and FLA's own tests of chunk_kda through the backend, gradients included.
#
#     python/tests/kda_training.sh FLA_CHECKOUT OUT [PYTHON]
#
# PYTHON has attngen, torch, flash-linear-attention, pytest and, for JOBS processes (default: half of the CPUs), pytest-xdist;
# the checkout is of the version that is installed. All parts run at the same time, each for at most SECONDS_EACH (default: 280):
# what one has found by then stays. OUT gets curves.json (lines of a width with both curves), gradients.json (errors, ours and
# FLA's), fla_suite.txt (the outcome of each test, and what attngen served in it) and a .log of each part; where tests of FLA's
# fail, fla_alone.txt has them with FLA's own kernels. The exit status is 1 where a part failed or did not end.
set -eu
export PYTHONUNBUFFERED=1
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 2 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
checkout=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
python=${3:-python3}
case $python in */*) python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python") ;; esac
jobs=${JOBS:-$((($(nproc) + 1) / 2))} seconds=${SECONDS_EACH:-280}
status=0 parts=''
rm -f "$out/curves.json" "$out/gradients.json"
cd "$here"

# A part by itself: its name, then pytest's arguments.
begin() {
    name=$1
    shift
    ATTNGEN_CURVES="$out/curves.json" ATTNGEN_GRADIENTS="$out/gradients.json" \
        timeout "$seconds" "$python" -m pytest -q -rs --durations=0 -p no:cacheprovider "$@" >"$out/$name.log" 2>&1 &
    parts="$parts $name:$!"
}
begin curves_64 test_training.py -k 'as_with_fla and 64'
begin curves_128 test_training.py -k 'as_with_fla and 128'
begin gradients_8 test_gradients.py -k 8
begin gradients_16 test_gradients.py -k 16

# Heads of 60, 100 and 256, chunks of 32 and intermediate states take FLA's kernels.
served='test_chunk and not D60 and not D100 and not D256 and not size32 and not flash and not npu and not intermediate'
suite() {
    timeout -s INT -k 10 "$seconds" sh "$here/fla_suite.sh" "$checkout" "$python" -n "$jobs" -v --durations=0 "$@"
}
if ! suite -k "$served" >"$out/fla_suite.txt" 2>&1; then
    status=1
    grep -E '^(FAILED|ERROR|E  )' "$out/fla_suite.txt" || tail -n 20 "$out/fla_suite.txt"
    failed=$(sed -n 's/^FAILED [^:]*::\([^ ]*\).*/\1/p' "$out/fla_suite.txt" | sed 's/\[.*//' | sort -u | tr '\n' ' ')
    if [ "$failed" ]; then # which of them fail without attngen, too
        FLA_ATTNGEN=0 suite -k "($(echo $failed | sed 's/ / or /g')) and ($served)" >"$out/fla_alone.txt" 2>&1 || true
        grep -E '^(FAILED|ERROR)' "$out/fla_alone.txt" | sed 's/^/without attngen: /' || true
    fi
fi
tail -n 1 "$out/fla_suite.txt"
for part in $parts; do
    wait "${part#*:}" || { status=1; grep -E '^(FAILED|ERROR|E  )' "$out/${part%:*}.log" || true; }
    echo "${part%:*}: $(tail -n 1 "$out/${part%:*}.log")"
done
exit $status
