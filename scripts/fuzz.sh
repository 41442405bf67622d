#!/bin/sh
# Runs the fuzz targets of a build (cmake --preset fuzz && cmake --build --preset fuzz), as many at a
# time as there are CPUs, each from its corpus in tests/fuzz/corpus.
#
#     scripts/fuzz.sh [BUILD [TARGET...]]        build-fuzz, all targets
#
# Each tries a fixed number of inputs from a fixed seed, about a minute's: the same ones every time, so
# that a change is not refused for what another run would not have found. To look for faults,
#
#     ATTNGEN_FUZZ_SECONDS=N    lets each run N seconds from a seed that is drawn
#
# An input that fails is kept in BUILD/fuzz/<target>-*, what gave new coverage in
# BUILD/fuzz/<target>/, from where the next search with ATTNGEN_FUZZ_SECONDS goes on. An input that showed a fault belongs into tests/fuzz/corpus/<target>, which
# every build's tests replay.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build-fuzz}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- product table template problem arguments
seconds=${ATTNGEN_FUZZ_SECONDS:-}

inputs_of() { # TARGET
    case $1 in
    product) echo 500000 ;;
    table) echo 150000 ;;
    template) echo 7500 ;;
    problem) echo 70000 ;;
    *) echo 80000 ;;
    esac
}

for target in "$@"; do
    [ -x "$build/tests/fuzz_$target" ] || {
        echo "fuzz.sh: $build/tests/fuzz_$target is not there; cmake --preset fuzz && cmake --build --preset fuzz" >&2
        exit 1
    }
    [ -n "$seconds" ] || rm -rf "$build/fuzz/$target" # found by another run
    mkdir -p "$build/fuzz/$target"
done
# Leaks are looked for by the tests; here the search would take most of the time.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1
export build
# shellcheck disable=SC2016
for target in "$@"; do
    if [ -n "$seconds" ]; then
        echo "$target -max_total_time=$seconds"
    else
        echo "$target -seed=1 -runs=$(inputs_of "$target")"
    fi
done | xargs -P "$(nproc)" -I {} sh -c '
    set -- {}
    target=$1
    shift
    "$build/tests/fuzz_$target" "$@" -timeout=100 -max_len=8192 -verbosity=1 \
        -print_final_stats=1 -artifact_prefix="$build/fuzz/$target-" \
        "$build/fuzz/$target" "tests/fuzz/corpus/$target" >"$build/fuzz/$target.log" 2>&1 || {
        echo "fuzz.sh: $target failed; the end of $build/fuzz/$target.log:" >&2
        tail -n 40 "$build/fuzz/$target.log" >&2
        exit 1
    }
    echo "fuzz.sh: $target: $(sed -n "s/^stat::number_of_executed_units: *//p" "$build/fuzz/$target.log") inputs," \
        "$(grep -o "cov: [0-9]*" "$build/fuzz/$target.log" | tail -n 1)"
'
