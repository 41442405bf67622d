#!/bin/sh
# Variants' own kernels on the CPU against the reference: expands and compiles them for the emulation, builds a product of
# them and runs attngen verify on it, in several modes.
#   emulate.sh [options] NAME|GLOB...
#     -b DIR   the build tree (default: build)
#     -o DIR   where to work; kept, so that what did not change is not compiled again (default: BUILD/emul)
#     -f LIST  families (default: all)
#     -t LIST  targets (default sm_90a)
#     -l FILE  the verify list (default: the family's own)
#     -k GLOB  required keys
#     -m MODES EMUL_MODE's, separated by blanks (default: "eager late,reverse")
#     -c CC    compute capability of the device (default 90)
#     -j N     processes (default: one a CPU)
#     -r N     launches of each check (default 1)
#     -n       compiles alone
# Further options for attngen verify stand behind --.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=build out='' families='' targets=sm_90a list='' keys='' modes='eager late,reverse' cc=90 jobs=$(nproc) repeats=1 only_compile=
while getopts b:o:f:t:l:k:m:c:j:r:n letter; do
    case $letter in
    b) build=$OPTARG ;; o) out=$OPTARG ;; f) families=$OPTARG ;; t) targets=$OPTARG ;; l) list=$OPTARG ;;
    k) keys=$OPTARG ;; m) modes=$OPTARG ;; c) cc=$OPTARG ;; j) jobs=$OPTARG ;; r) repeats=$OPTARG ;; n) only_compile=1 ;;
    *) sed -n '2,/^set/p' "$0" | sed '$d;s/^# \{0,1\}//' >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
globs='' only='' build_only=''
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    globs="$globs $1" only="$only --only $1"
    shift
done
[ $# -eq 0 ] || shift
[ "$globs" ] || { echo "emulate.sh: which variants? Give names or globs" >&2; exit 2; }
set -f # globs are for attngen
build=$(cd "$build" && pwd)
out=${out:-$build/emul}
mkdir -p "$out/source" "$out/kernels"
out=$(cd "$out" && pwd)
attngen=$build/bin/attngen
templates=$(cd "$here/../../templates" && pwd)

fresh=$(mktemp -d "$out/expand.XXXXXX")
trap 'rm -rf "$fresh"' EXIT
"$attngen" expand $globs ${families:+-f "$families"} -t "$targets" --templates "$templates" -o "$fresh"
set +f
# An expansion that is as it was keeps its place, and so its compiled kernel.
for file in "$fresh"/*.cu; do
    name=$(basename "$file")
    cmp -s "$file" "$out/source/$name" || cp "$file" "$out/source/$name"
    echo "$out/source/$name"
done >"$out/list"
set -f
xargs -P "$jobs" -n 16 "$here/compile.sh" "$build/lib/libemul.so" "$templates" "$out/kernels" <"$out/list" || {
    [ -f "$out/kernels/no-compiler" ] && exit 77
    exit 1
}
[ -z "$only_compile" ] || exit 0

"$attngen" build -q $only ${families:+-f "$families"} -t "$targets" --templates "$templates" -j "$jobs" -o "$out/emul.fatbin"
status=0
for mode in $modes; do
    echo "== EMUL_MODE=$mode"
    GEN_LIBCUDA=$build/lib/libsim_cuda.so SIM_KERNELS=$out/kernels SIM_CC=$cc EMUL_MODE=$mode ATTNGEN_PRODUCT=$out/emul.fatbin \
        "$build/libexec/attngen/attngen-verify" $only ${families:+--families "$families"} ${keys:+--keys "$keys"} ${list:+--list "$list"} \
        --repeats "$repeats" "$@" || status=1
done
exit $status
