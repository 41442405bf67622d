#!/bin/sh
# Installs what the build and the tests need on Debian or Ubuntu (root or sudo),
# does nothing where all of it is there, and prints the CUDA toolkit's folder.
#
#     scripts/setup.sh            compiler, CMake, Ninja, Lua 5.4, cmocka, Python
#     scripts/setup.sh clang      clang, clang-format and clang-tidy as well; python: what a virtual environment needs;
#                                 packages: what makes and checks Debian packages, and compares interfaces
#
# The CUDA toolkit itself is not installed: it is looked for in $CUDA_HOME,
# $CUDA_PATH, beside nvcc on PATH and in /usr/local/cuda*.
set -eu

say() { echo "setup: $*" >&2; }
fail() { say "$*"; exit 1; }

missing=
# need PACKAGE COMMAND...: the package is missing if the command fails.
need() {
    package=$1
    shift
    "$@" >/dev/null 2>&1 || missing="$missing $package"
}
need gcc command -v cc
need g++ command -v g++ # nvcc asks it for its properties
need libc6-dev test -e /usr/include/stdio.h
need binutils command -v nm
need cmake command -v cmake
need ninja-build command -v ninja
need pkg-config command -v pkg-config
need liblua5.4-dev pkg-config --exists lua5.4
need libcmocka-dev pkg-config --exists cmocka
need python3 python3 -c 'import sys'
for extra in "$@"; do
    case $extra in
    clang)
        need clang command -v clang
        need clang-format command -v clang-format
        need clang-tidy command -v clang-tidy
        ;;
    python) need python3-venv python3 -c 'import ensurepip, venv' ;;
    packages)
        need dpkg-dev command -v dpkg-shlibdeps
        need lintian command -v lintian
        need abigail-tools command -v abidiff
        ;;
    *) fail "unknown argument '$extra': allowed are clang, packages, python" ;;
    esac
done

if [ -n "$missing" ]; then
    command -v apt-get >/dev/null || fail "missing:$missing (Debian's names); install them and run again"
    if [ "$(id -u)" = 0 ]; then
        as_root="env"
    elif command -v sudo >/dev/null; then
        as_root="sudo env"
    else
        fail "missing:$missing; installing them needs root or sudo"
    fi
    say "installing$missing"
    # stdin is closed and stdout belongs to the toolkit's folder alone.
    $as_root DEBIAN_FRONTEND=noninteractive apt-get update -qq </dev/null >&2
    # shellcheck disable=SC2086
    $as_root DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        $missing </dev/null >&2
fi

is_toolkit() {
    [ -x "$1/bin/nvcc" ] && [ -x "$1/bin/fatbinary" ] && [ -e "$1/include/nvrtc.h" ]
}
on_path=$(command -v nvcc || true)
for root in "${CUDA_HOME:-}" "${CUDA_PATH:-}" "${on_path%/bin/nvcc}" /usr/local/cuda \
    $(ls -d /usr/local/cuda-* 2>/dev/null | sort -rV); do
    if [ -n "$root" ] && is_toolkit "$root"; then
        echo "$root"
        exit 0
    fi
done
fail "no CUDA toolkit with nvcc, fatbinary and NVRTC in \$CUDA_HOME, \$CUDA_PATH, on PATH or in" \
    "/usr/local/cuda*. Debian packages of it: https://developer.nvidia.com/cuda-downloads" \
    "(13.0; docs/toolkits.md says what others give; cuda-nvcc, cuda-nvrtc-dev and cuda-cudart-dev are enough)"
