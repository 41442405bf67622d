#!/bin/sh
# Runs the fuzz targets of a build (cmake --preset fuzz && cmake --build --preset fuzz), as many at a
# time as there are CPUs, each from its corpus in tests/fuzz/corpus.
#
#     scripts/fuzz.sh [BUILD [TARGET...]]        build-fuzz, all targets
#
#     ATTNGEN_FUZZ_SECONDS=N    how long each runs; 60
#
# An input that fails is kept in BUILD/fuzz/<target>-*, what gave new coverage in
# BUILD/fuzz/<target>/. An input that showed a fault belongs into tests/fuzz/corpus/<target>, which
# every build's tests replay.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build-fuzz}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- product table template problem arguments
seconds=${ATTNGEN_FUZZ_SECONDS:-60}

for target in "$@"; do
    [ -x "$build/tests/fuzz_$target" ] || {
        echo "fuzz.sh: $build/tests/fuzz_$target is not there; cmake --preset fuzz && cmake --build --preset fuzz" >&2
        exit 1
    }
    mkdir -p "$build/fuzz/$target"
done
# Leaks are looked for by the tests; here the search would take most of the time.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1
export build seconds
# shellcheck disable=SC2016
printf '%s\n' "$@" | xargs -P "$(nproc)" -I {} sh -c '
    "$build/tests/fuzz_{}" -max_total_time="$seconds" -timeout=100 -max_len=8192 -verbosity=1 \
        -print_final_stats=1 -artifact_prefix="$build/fuzz/{}-" \
        "$build/fuzz/{}" "tests/fuzz/corpus/{}" >"$build/fuzz/{}.log" 2>&1 || {
        echo "fuzz.sh: {} failed; the end of $build/fuzz/{}.log:" >&2
        tail -n 40 "$build/fuzz/{}.log" >&2
        exit 1
    }
    echo "fuzz.sh: {}: $(sed -n "s/^stat::number_of_executed_units: *//p" "$build/fuzz/{}.log") inputs," \
        "$(grep -o "cov: [0-9]*" "$build/fuzz/{}.log" | tail -n 1)"
'
