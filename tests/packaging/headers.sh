#!/bin/sh
# Can a caller's tools read the public headers? Each compiles alone, in C and C++, without a pedantic warning;
# preprocessed it is plain declarations, as cffi, pycparser and bindgen want them: no assertion, no alignment,
# no attribute, no parameters of kernels. Where Python has cffi, cffi reads them, too.
#
#     headers.sh INCLUDE_FOLDER CC CXX [planted]
#
# With `planted` it also finds what is put into copies of the headers.
set -eu
include=$1
cc=$2
cxx=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
failed() {
    echo "FAILED: $*" >&2
    status=1
}
# read_as LANGUAGE COMPILER STANDARD HEADER
read_as() {
    "$2" -x "$1" "-std=$3" -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$include" "$4" || failed "$4 as $3"
}
# What a parser of C takes: without the system's headers, whose types it knows.
mkdir "$work/plain"
for header in "$include"/attngen/*.h; do
    grep -v '^#include <' "$header" >"$work/plain/${header##*/}"
done
plain() {
    "$cc" -E -P -x c -DGEN_API= -I"$work/plain" "$1"
}

count=0
for header in "$include"/attngen/*.h; do
    name=${header##*/}
    printf '#include <attngen/%s>\n' "$name" >"$work/one.c"
    for standard in c11 c17; do
        read_as c "$cc" $standard "$work/one.c"
    done
    [ -z "$cxx" ] || read_as c++ "$cxx" c++11 "$work/one.c"
    plain "$work/plain/$name" >"$work/text"
    ! grep -nE '_Static_assert|static_assert|alignas|_Alignas|__attribute__|asm|_params\b' "$work/text" ||
        failed "$name has what is private"
    ! grep -nE '__CUDACC|_params\b|/args\.h"' "$header" || failed "$name has what is of kernels"
    count=$((count + 1))
done
[ "$count" -ge 15 ] || failed "$count headers in $include/attngen"

# All of them in one, as cffi takes it.
for header in "$include"/attngen/*.h; do
    echo "#include \"${header##*/}\""
done >"$work/plain/all.c"
plain "$work/plain/all.c" >"$work/all.txt"
if python3 -c 'import cffi' 2>/dev/null; then
    python3 - "$work/all.txt" <<'PYTHON' || failed "cffi"
import sys
import cffi
ffi = cffi.FFI()
ffi.cdef(open(sys.argv[1]).read())
for tag, value in (("GEN_LA_DECODE", 0x4C414443), ("GEN_ATTN_FWD", 0x41544E46)):
    assert ffi.typeof(f"enum {tag.lower()}_tag").relements[tag] == value
print("cffi:", ffi.sizeof("gen_plan"), "bytes of a plan")
PYTHON
else
    echo "cffi is not there: compiled and searched alone"
fi
echo "$count headers"

# planted FILE TEXT: a line is added to a copy.
planted() {
    rm -rf "$work/copy"
    mkdir "$work/copy"
    cp -R "$include/attngen" "$work/copy"
    echo "$2" >>"$work/copy/attngen/$1"
    ! "$0" "$work/copy" "$cc" "$cxx" >/dev/null 2>&1 || failed "$1 may have $2"
}
if [ "${4:-}" = planted ]; then
    planted gen.h '_Static_assert(1, "always");'
    planted kda_intra.h 'struct gen_kda_intra_params { int x; };'
    planted mla.h '#ifdef __CUDACC_RTC__
#endif'
    planted attn_fwd.h 'struct gen_aligned { int x __attribute__((aligned(64))); };'
    planted la_decode.h 'struct gen_empty { };'
fi
exit $status
