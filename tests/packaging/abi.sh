#!/bin/sh
# Holds the C interface to the description that is committed beside this file: abidiff compares every
# function and every public struct and enum of the headers with it. What callers need not notice
# passes: a function, a struct or an enumerator more, a field more at the end of a struct (its size
# says so), another number of statuses, another limit, a pointer that may point to any type now. All
# else fails.
#
#     abi.sh INCLUDE_FOLDER CC LIBRARY     compares, and sees that planted changes are found
#     abi.sh --record INCLUDE_FOLDER CC    writes the description anew
set -eu
here=$(cd "$(dirname "$0")" && pwd)
committed=$here/libattngen.abi
record=
if [ "$1" = --record ]; then
    record=1
    shift
fi
include=$(cd "$1" && pwd)
cc=$2
for program in abidiff abidw; do
    command -v $program >/dev/null || { echo "skipped: there is no $program (Debian: abigail-tools)"; exit 77; }
done
[ "$(uname -m)" = x86_64 ] || { echo "skipped: the description is of x86-64"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What is left of abidiff's report of changed types when all that may change is taken out of it.
cat >"$work/notice.awk" <<'END'
/^(Leaf changes|Changed leaf types|Removed\/Changed\/Added [a-z]+) summary:/ {
    if (/^Removed/ && !/ 0 Removed, 0 Changed/) print
    next
}
/^$/ || /^  type size hasn't changed$/ || /^  [0-9]+ (data member|enumerator) (insertion|change)s?:$/ { next }
/^'(struct|enum) .* changed:$/ { type = $0; size = 0; next }
/^  type size changed from [0-9]+ to/ { size = $5; next }
/^    '.*', at offset [0-9]+ \(in bits\)/ && size > 0 { # a field more, behind all others
    match($0, /at offset [0-9]+/)
    if (substr($0, RSTART + 10, RLENGTH - 10) + 0 >= size) next
}
/^    '[a-z_]+::GEN_[A-Z_]+' value '/ { next }
/^  there are data member changes:$/ { next } # which follow
/^    type '.*\*' of '.*' changed:$/ { held = $0; next }
held != "" && /^      pointer type changed from: '.*\*' to: '(const )?void\*'$/ { held = ""; next } # takes what it took
held != "" { print type; print held; held = "" }
/^    '[a-z_]+::GEN_(STATUS|WHY)_COUNT' from value/ { next }
/^    '[a-z_]+_limit::GEN_[A-Z_]+' from value/ { next } # what a problem may have at most
{ print type; print }
END

# describe INCLUDE_FOLDER OUTPUT: a library with a variable for each function, struct and enum. The
# library itself carries no types, and the families' structs are in no function's.
describe() {
    headers=$(cd "$1/attngen" && find . -name '*.h' | LC_ALL=C sort)
    {
        for header in $headers; do echo "#include <attngen/$header>"; done
        for header in $headers; do
            sed -n 's/^} \(gen_[a-z0-9_]*\);.*/extern \1 *abi_\1; \1 *abi_\1;/p' "$1/attngen/$header"
            sed -n 's/^enum \(gen_[a-z0-9_]*\) {.*/extern enum \1 *abi_enum_\1; enum \1 *abi_enum_\1;/p' "$1/attngen/$header"
            grep -v '^#' "$1/attngen/$header" | tr '\n' ' ' | grep -o 'GEN_API [^;]*;' | sed 's/(.*//; s/.*[ *]//' |
                sed 's/.*/extern __typeof__(\&&) abi_call_&; __typeof__(\&&) abi_call_&;/' || true
        done
    } >"$work/abi.c"
    (cd "$work" && $cc -std=gnu11 -g -fPIC -shared -I "$1" abi.c -o libattngen.so &&
        abidw --no-show-locs --no-corpus-path --no-comp-dir-path --no-elf-needed libattngen.so >"$2")
}

# compare INCLUDE_FOLDER: what callers would notice is in $work/notice.
compare() {
    describe "$1" "$work/now.abi"
    difference=0
    abidiff --leaf-changes-only --no-added-syms "$committed" "$work/now.abi" >"$work/report" 2>&1 || difference=$?
    case $difference in
    0 | 4 | 12) ;; # none; some; some that cannot be compatible
    *) cat "$work/report"; echo "FAILED: abidiff" >&2; exit 1 ;;
    esac
    awk -f "$work/notice.awk" "$work/report" >"$work/notice"
    [ ! -s "$work/notice" ]
}

if [ -n "$record" ]; then
    describe "$include" "$committed"
    echo "abi.sh: wrote $committed"
    exit 0
fi
if ! compare "$include"; then
    cat "$work/notice"
    echo "abi.sh: callers that were built with the headers before must be built anew. If that is meant, raise" >&2
    echo "ATTNGEN_ABI in runtime/CMakeLists.txt after a release, and record the interface: $0 --record $1 $cc" >&2
    exit 1
fi

nm -D --defined-only "$3" | sed 's/.* \([^@]*\).*/\1/' | sort >"$work/exported"
sed -n "s/.*elf-symbol name='abi_call_\([a-z_]*\)'.*/\1/p" "$committed" | sort >"$work/promised"
lost=$(comm -13 "$work/exported" "$work/promised")
[ -z "$lost" ] && [ -s "$work/promised" ] || { echo "FAILED: $3 does not export $lost" >&2; exit 1; }

# planted WORD FILE EXPRESSION: a change of a header that passes or fails.
planted() {
    rm -rf "$work/planted"
    cp -RL "$include" "$work/planted"
    sed -i "$3" "$work/planted/attngen/$2"
    cmp -s "$include/attngen/$2" "$work/planted/attngen/$2" && { echo "FAILED: nothing is planted: $3" >&2; exit 1; }
    found=fails
    if compare "$work/planted"; then found=passes; fi
    [ $found = "$1" ] || { cat "$work/report"; echo "FAILED: $2, $3: it $found" >&2; exit 1; }
}
planted fails la_decode.h 's/int32_t head_dim; /int32_t more, head_dim; /'
planted fails la_decode.h 's/^    int32_t dtype;.*/    int64_t dtype;/'
planted fails kda_prefill.h '/int32_t \*cu_seqlens_host;/d'
planted fails attn_fwd.h 's/const float \*q_descale;/const double *q_descale;/'
planted fails attn_fwd.h 's/GEN_ATTN_FWD = 0x41544e46/GEN_ATTN_FWD = 0x41544e47/'
planted fails la_decode.h 's/GEN_LA_STATE_VK = 0/GEN_LA_STATE_VK = 2/'
planted fails gen.h 's/, void \*workspace, gen_stream stream);/, gen_stream stream, void *workspace);/'
planted fails gen.h 's/GEN_API const char \*gen_version(void);//'
planted fails gen.h 's/X(IO, "a file could not be read")  */X(NEW, "new") X(IO, "a file could not be read") /'
planted fails gen.h 's/uint64_t workspace_bytes;/uint32_t workspace_bytes;/'
planted fails la_decode.h 's/^} gen_la_decode_problem;/    int32_t more;\n} gen_la_decode_problem;/; s/^    int32_t dtype;.*/    int64_t dtype;/'
planted fails la_decode.h 's/^} gen_la_decode_args;/    int64_t more;\n} gen_la_decode_args;/; s/^    void \*state;/    double *state;/'
planted passes la_decode.h 's/^} gen_la_decode_args;/    int64_t more;\n} gen_la_decode_args;/'
planted passes gen.h 's/^} gen_library_info;/    uint64_t more;\n} gen_library_info;/'
planted passes gen.h 's/GEN_API const char \*gen_version(void);/&\nGEN_API int gen_more(void);/'
planted passes gen.h 's/X(MISMATCH, \(.*\))$/X(MISMATCH, \1) X(MORE, "more")/'
planted passes gen.h 's/GEN_SERIAL_LAUNCH = 1u << 2/&, GEN_MORE = 1u << 3/'
planted passes la_decode.h 's/^    const float \*decay;/    const void *decay;/'
echo "abi.sh: $(grep -c '^extern' "$work/abi.c") functions, structs and enums are as before; 18 planted changes are told apart"
