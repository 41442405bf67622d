#!/bin/sh
# exports.sh NM LIBRARY HEADER: the library's dynamic symbols are the functions
# that the header declares with GEN_API, and it needs nothing but libc.
set -eu
nm=$1 library=$2 header=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"$nm" -D --defined-only "$library" | sed -n 's/.* [TtDdBbRr] \([^@]*\).*/\1/p' | sort >"$scratch/exported"
grep -v '^#' "$header" | tr '\n' ' ' | grep -o 'GEN_API [^;]*;' | sed 's/(.*//; s/.*[ *]//' | sort >"$scratch/declared"
if ! test -s "$scratch/declared"; then
    echo "exports.sh: no GEN_API function found in $header" >&2
    exit 1
fi
if ! diff "$scratch/declared" "$scratch/exported"; then
    echo "exports.sh: < declared in gen.h, > exported by $library" >&2
    exit 1
fi
unwanted=$(objdump -p "$library" | sed -n 's/.*NEEDED *//p' |
    grep -v -e '^libc\.' -e '^libm\.' -e '^libdl\.' -e '^libpthread\.' -e '^ld-linux' \
        -e san\.so || true)
if test -n "$unwanted"; then
    echo "exports.sh: $library needs $unwanted" >&2
    exit 1
fi
echo "exports.sh: $(wc -l <"$scratch/declared") functions, none but the header's"
