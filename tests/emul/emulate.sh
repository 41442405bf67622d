#!/bin/sh
# Variants' own kernels on the CPU against the reference: expands and compiles them for the emulation, builds a product of
# them and runs attngen verify on it, in several modes.
#   emulate.sh [options] NAME|GLOB... [-- options of attngen verify]
#     -b DIR   the build tree (default: build)
#     -o DIR   where to work; kept, so that what did not change is not compiled again (default: BUILD/emul)
#     -f LIST  families, comma-separated (default: all). One that no glob begins with is built, all of it, and not verified:
#              what another family's plans launch besides
#     -t LIST  targets (default: sm_90a)
#     -c CC    compute capability of the device (default: 90)
#     -s N     multiprocessors of the device: few, so that persistent blocks have work for more than one round (default: 2)
#     -L N     bytes of its L2 cache (default: an H200's)
#     -T DIR   templates (default: those beside this script's folder)
#     -l FILE  the verify list (default: the family's own)
#     -x REGEX leaves out lines of the family's own list (grep -E)
#     -k GLOB  required keys
#     -m MODES words for EMUL_MODE (engine.h), separated by blanks (default: "eager,ahead late,reverse random")
#     -r N     launches of each check (default: 1)
#     -j N     processes (default: one a CPU)
#     -p NAME  runs BUILD/tests/NAME device on the product, not attngen verify
#     -n       compiles alone
#     -S       each check in one of the modes alone, in turns: as many times fewer as there are modes
# Exit status 77: there is no C++ compiler (CXX names one, default c++).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
usage() {
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
build=build out='' families='' targets=sm_90a cc=90 sms=2 l2='' list='' leave_out='' keys='' modes='eager,ahead late,reverse random' repeats=1 jobs=$(nproc)
compile_only='' program='' spread='' templates=$here/../../templates
while getopts b:o:f:t:c:s:L:T:l:x:k:m:r:j:p:nS letter; do
    case $letter in
    b) build=$OPTARG ;; o) out=$OPTARG ;; f) families=$OPTARG ;; t) targets=$OPTARG ;; c) cc=$OPTARG ;; s) sms=$OPTARG ;; L) l2=$OPTARG ;; T) templates=$OPTARG ;; l) list=$OPTARG ;;
    x) leave_out=$OPTARG ;; k) keys=$OPTARG ;; m) modes=$OPTARG ;; r) repeats=$OPTARG ;; j) jobs=$OPTARG ;; p) program=$OPTARG ;; n) compile_only=1 ;; S) spread=1 ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
set -f # globs are for attngen
globs='' only=''
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    globs="$globs $1" only="$only --only $1"
    shift
done
[ $# -eq 0 ] || shift
[ "$globs" ] || usage
command -v "${CXX:-c++}" >/dev/null || { echo "emulate.sh: no C++ compiler '${CXX:-c++}'; CXX names another" >&2; exit 77; }

build=$(cd "$build" && pwd)
out=${out:-$build/emul}
mkdir -p "$out/kernels"
out=$(cd "$out" && pwd)
rm -rf "$out/expanded" "$out"/*.log "$out"/*.status
templates=$(cd "$templates" && pwd)
verified='' others='' build_only=$only
[ -z "$families" ] || families=$families,index32 # plans of problems with index=int64 begin with it
for family in $(echo "$families" | tr , ' '); do
    found=''
    for glob in $globs; do
        case $glob in "$family"*) found=1 ;; esac
    done
    if [ "$found" ]; then
        verified="$verified --families $family"
    else
        others="$others ${family}_*" build_only="$build_only --only ${family}_*"
    fi
done
expand() {
    folder=$1
    shift
    "$build/bin/attngen" expand "$@" ${families:+-f "$families"} -t "$targets" --templates "$templates" -o "$folder"
}
expand "$out/expanded" $globs
[ -z "$others" ] || expand "$out/expanded/others" $others
find "$out/expanded" -maxdepth 1 -name '*.cu' -exec basename {} .cu ';' | LC_ALL=C sort >"$out/wanted"
find "$out/expanded" -name '*.cu' | LC_ALL=C sort | xargs -P "$jobs" -n 8 "$here/compile.sh" "$build/lib/libemul.so" "$templates" "$out/kernels"
[ -z "$compile_only" ] || exit 0

"$build/bin/attngen" build -q --full $build_only ${families:+-f "$families"} -t "$targets" --templates "$templates" -j "$jobs" -o "$out/emul.fatbin"
export GEN_LIBCUDA="$build/lib/libsim_cuda.so" SIM_KERNELS="$out/kernels" SIM_CC="$cc" SIM_SMS="$sms" ATTNGEN_PRODUCT="$out/emul.fatbin"
[ -z "$l2" ] || export SIM_L2="$l2"
if [ "$program" ]; then
    for mode in $modes; do
        echo "== EMUL_MODE=$mode"
        EMUL_MODE=$mode "$build/tests/$program" device
    done
    exit 0
fi
if [ "$leave_out" ]; then
    own=$templates/../bench/shapes/${verified##* }_verify.txt
    list=$out/list.txt
    grep -v -E -e "$leave_out" "$own" >"$list"
fi
# One mode, and with -S its part of the checks; its output and exit status go to files.
verify() {
    EMUL_MODE=$1 "$build/libexec/attngen/attngen-verify" $verified $only ${keys:+--keys "$keys"} ${list:+--list "$list"} --repeats "$repeats" --all \
        ${2:+--part "$2"} $options >"$out/$1.log" 2>&1 && echo 0 >"$out/$1.status" || echo 1 >"$out/$1.status"
}
options=$*
status=0 running=0 at=0
for mode in $modes; do
    verify "$mode" ${spread:+"$at/$(echo "$modes" | wc -w)"} &
    running=$((running + 1)) at=$((at + 1))
    if [ $running -ge "$jobs" ]; then
        wait
        running=0
    fi
done
wait
for mode in $modes; do
    echo "== EMUL_MODE=$mode"
    grep -v "^ok" "$out/$mode.log"
    [ "$(cat "$out/$mode.status")" = 0 ] || status=1
    # All of them, lest one that the product lacks passes.
    find "$out" -maxdepth 1 -name "$([ "$spread" ] && echo '*' || echo "$mode").log" -exec cat {} + | cut -f 2 | LC_ALL=C sort -u >"$out/ran"
    for name in $(LC_ALL=C comm -13 "$out/ran" "$out/wanted"); do
        [ "$keys" ] || { echo "not run: $name: no case of the list is for it, or the build refused it (attngen why)"; status=1; }
    done
done
exit $status
