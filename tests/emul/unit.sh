#!/bin/sh
# Compiles kernels/*.cu and runs test_emul on them. Exit status 77 without a C++ compiler.
#   unit.sh TEST_PROGRAM LIBEMUL SCRATCH
set -eu
here=$(cd "$(dirname "$0")" && pwd)
"$here/compile.sh" "$2" "$here/../../templates" "$3" "$here"/kernels/*.cu
exec "$1" "$3"
