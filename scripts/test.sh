#!/bin/sh
# Sets the machine up, builds with every warning an error and runs the tests.
# Needs no GPU; with one, the tests labelled `gpu` run too.
#
#     scripts/test.sh                 gcc, all tests
#     scripts/test.sh STAGE...        in that order, of:
#         format   C files are as clang-format writes them, but for templates; commits follow CONTRIBUTING.md
#         clang    builds with clang, runs the tests of the C code
#         asan     the same with gcc's address and undefined-behaviour sanitizers
#         tsan     the tests that start threads, with gcc's thread sanitizer (with either, gcc's
#                  warnings see ghosts and are no errors)
#         gcc      builds with gcc, makes the product, runs every test
#
# Build folders: build-test, build-clang, build-asan, build-tsan.
set -eu
cd "$(dirname "$0")/.."

[ $# -gt 0 ] || set -- gcc
extra=
for stage in "$@"; do
    case $stage in
    gcc | asan | tsan) ;;
    clang | format) extra=clang ;;
    *)
        echo "test.sh: unknown stage '$stage': allowed are format, clang, asan, tsan, gcc" >&2
        exit 1
        ;;
    esac
done
# shellcheck disable=SC2086
cuda=$(scripts/setup.sh $extra)
jobs=$(nproc 2>/dev/null || echo 2)

# preset_stage PRESET: configures, builds and tests one preset.
preset_stage() {
    cmake --preset "$1" -DCUDAToolkit_ROOT="$cuda"
    cmake --build --preset "$1" -j "$jobs"
    ctest --preset "$1" -j "$jobs"
}

for stage in "$@"; do
    echo "== $stage"
    case $stage in
    format)
        # Templates keep their style by hand, their headers, too: what the compiler reads of them is in the kernels'
        # digests, so that a new line would expire what was measured.
        find gen runtime bench tests -name '*.[ch]' | xargs clang-format --dry-run -Werror
        # An exported tree has no commits.
        ! git rev-parse --git-dir >/dev/null 2>&1 || scripts/check_commits.sh
        ;;
    gcc)
        cmake --preset default -B build-test -DATTNGEN_WERROR=ON -DCUDAToolkit_ROOT="$cuda"
        cmake --build build-test -j "$jobs"
        ctest --test-dir build-test --output-on-failure --no-tests=error -j "$jobs"
        ;;
    *) preset_stage "$stage" ;;
    esac
done
echo "== passed: $*"
