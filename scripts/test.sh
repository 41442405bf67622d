#!/bin/sh
# Sets the machine up, builds with every warning an error and runs the tests.
# Needs no GPU; with one, the tests labelled `gpu` run too.
#
#     scripts/test.sh                 gcc, all tests
#     scripts/test.sh STAGE...        in that order, of:
#         format   C files are as clang-format writes them, but for templates; commits follow CONTRIBUTING.md
#         lint     clang-tidy and gcc's analyzer over gen/, runtime/ and bench/ (scripts/lint.py)
#         clang    builds with clang, runs the tests of the C code that are not long
#         fuzz     the fuzz targets, with clang's libFuzzer and sanitizers (scripts/fuzz.sh)
#         mutate   mistakes in checks, and whether the tests notice them (scripts/mutate.sh)
#         asan     the tests of the C code, the long ones too, with gcc's address and undefined-behaviour sanitizers
#         tsan     the tests that start threads, with gcc's thread sanitizer (with either, gcc's
#                  warnings see ghosts and are no errors)
#         gcc      builds with gcc, makes the product, runs every test
#         python   builds the wheel around gcc's product, installs it and runs its tests on NumPy and JAX; skips with a
#                  message where the packages that it needs cannot be had
#         toolkits compiles a sample of variants with the NVRTC of four CUDA toolkits from PyPI, with gcc's generator
#                  (scripts/toolkits.sh); skips with a message where PyPI does not give them
#
# Build folders: build-toolkits, build-test, build-clang, build-fuzz, build-mutate,
# build-asan, build-tsan, build-python.
set -eu
cd "$(dirname "$0")/.."

[ $# -gt 0 ] || set -- gcc
extra=
for stage in "$@"; do
    case $stage in
    gcc) extra="$extra packages" ;;
    asan | tsan | mutate) ;;
    python | toolkits) extra="$extra python" ;;
    clang | format | fuzz | lint) extra="$extra clang" ;;
    *)
        echo "test.sh: unknown stage '$stage': allowed are format, lint, clang, fuzz, mutate, asan, tsan, gcc, python, toolkits" >&2
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

configure_test() {
    cmake --preset default -B build-test -DATTNGEN_WERROR=ON -DCUDAToolkit_ROOT="$cuda"
}

# The package is built as its users build it, and tested as it is installed.
python_stage() {
    [ -x build-python/venv/bin/python ] || python3 -m venv build-python/venv
    venv=$PWD/build-python/venv/bin/python
    if ! "$venv" -m pip install --quiet apache-tvm-ffi numpy ml_dtypes jax pytest wheel; then
        echo "test.sh: the stage python is skipped: pip cannot install apache-tvm-ffi, numpy, ml_dtypes, jax, pytest, wheel" >&2
        return 0
    fi
    if [ ! -e build-test/attngen.fatbin ]; then
        cmake --preset default -B build-test -DCUDAToolkit_ROOT="$cuda"
        cmake --build build-test -j "$jobs" --target product
    fi
    rm -f build-python/*.whl
    wheel=$(ATTNGEN_WHEEL_PRODUCT=$PWD/build-test/attngen.fatbin PYTHON=$venv \
        SKBUILD_CMAKE_DEFINE="ATTNGEN_WERROR=ON;CUDAToolkit_ROOT=$cuda" python/wheel.sh build-python)
    "$venv" -m pip install --quiet --no-deps --force-reinstall "$wheel"
    fake=$PWD/build-test/tests/libfake_cuda.so
    [ ! -e "$fake" ] || export ATTNGEN_FAKE_CUDA="$fake"
    (cd build-python && "$venv" -m pytest -q -rs -p no:cacheprovider ../python/tests)
}

for stage in "$@"; do
    echo "== $stage"
    case $stage in
    format)
        scripts/format_templates.py --check
        find gen runtime bench python tests -name '*.[ch]' | xargs clang-format --dry-run -Werror
        # An exported tree has no commits.
        ! git rev-parse --git-dir >/dev/null 2>&1 || scripts/check_commits.sh
        ;;
    lint)
        configure_test
        scripts/lint.py build-test
        ;;
    fuzz)
        cmake --preset fuzz -DCUDAToolkit_ROOT="$cuda"
        cmake --build --preset fuzz -j "$jobs"
        scripts/fuzz.sh
        ;;
    mutate)
        scripts/mutate.sh
        ;;
    gcc)
        configure_test
        cmake --build build-test -j "$jobs"
        ctest --test-dir build-test --output-on-failure --no-tests=error -j "$jobs"
        ;;
    python) python_stage ;;
    toolkits)
        [ -e build-test/build.ninja ] || configure_test
        cmake --build build-test -j "$jobs" --target attngen
        scripts/toolkits.sh build-test --quick
        ;;
    *) preset_stage "$stage" ;;
    esac
done
echo "== passed: $*"
