#!/bin/sh
# The C++ example by each compiler that is there, without a warning: compilers.sh INCLUDE_FOLDER...
set -eu
cd "$(dirname "$0")"
for folder; do set -- "$@" -I "$folder"; shift; done
count=0
for compiler in g++ clang++; do
    command -v "$compiler" >/dev/null || continue
    for standard in c++17 c++20; do
        "$compiler" -std=$standard -Wall -Wextra -pedantic -Werror "$@" -fsyntax-only decode.cpp
    done
    echo "$compiler: no warning"
    count=$((count + 1))
done
[ $count -gt 0 ] || { echo "there is no C++ compiler" >&2; exit 1; }
