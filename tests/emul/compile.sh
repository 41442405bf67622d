#!/bin/sh
# Compiles expanded kernels (attngen expand) for the emulation: one <symbol>.so a kernel.
#   compile.sh LIBEMUL TEMPLATES OUTPUT SOURCE.cu...
# Objects are kept in EMUL_CACHE (OUTPUT/cache), which several outputs may share, by the content of everything that goes into
# them. CXX names the compiler, CXXFLAGS adds options (-g -O0 -fsanitize=address). Exit status 77: there is no C++ compiler.
set -eu
engine=$(cd "$(dirname "$1")" && pwd)/$(basename "$1") templates=$2 output=$3
shift 3
here=$(cd "$(dirname "$0")" && pwd)
beside=$(cd "$(dirname "$1")" && pwd) # sources may include what stands beside them
cxx=${CXX:-c++}
command -v "$cxx" >/dev/null || { echo "compile.sh: no C++ compiler '$cxx'; CXX names another" >&2; exit 77; }
cache=${EMUL_CACHE:-$output/cache}
mkdir -p "$cache" "$output/source"
cache=$(cd "$cache" && pwd)
"$here/rewrite.py" "$templates" "$output/source" "$@"
# A GPU contracts a * b + c as well, and knows no aliasing rules; what is not initialised holds a pattern.
flags="-std=c++17 -O2 -march=native -ffp-contract=fast -fno-math-errno -fno-strict-aliasing -fno-exceptions -fPIC
-shared -fvisibility=hidden -w -I$here -I$here/include ${CXXFLAGS:-}"
case $("$cxx" --version) in
*clang*) ;;
*) flags="$flags -fno-gnu-unique -fno-extern-tls-init" ;;
esac
probe="$cache/probe.$$"
echo 'int x;' >"$probe.cpp"
for flag in -ftrivial-auto-var-init=pattern; do
    "$cxx" -Werror $flag -c -o /dev/null "$probe.cpp" 2>/dev/null && flags="$flags $flag"
done
rm -f "$probe.cpp"
common=$({
    "$cxx" --version
    echo "$flags"
    grep -m 1 -h '^flags\|^Features' /proc/cpuinfo 2>/dev/null || true
    cat "$here/engine.h" "$here"/include/*/* "$0"
    find "$output/source/" "$beside" -name '*.cuh' -o -name '*.h' | LC_ALL=C sort | xargs cat
} | sha256sum | cut -c 1-32)

compile_one() {
    name=$(basename "$1" .cu)
    source=$output/source/$name.cu
    # The head of the kernel may have several lines.
    head=$(awk '/^ *extern "C" __global__ / { inside = 1 } inside { text = text " " $0 } inside && /\{/ { print text; exit }' "$source")
    symbol=$(echo "$head" | sed -n 's/.* __global__ .*[ )]\([A-Za-z_][A-Za-z_0-9]*\)(.*/\1/p')
    [ -n "$symbol" ] || { echo "compile.sh: $1 has no line that begins with extern \"C\" __global__" >&2; return 1; }
    key=$({ echo "$common"; cat "$source"; } | sha256sum | cut -c 1-32)
    object=$cache/$key.so
    if [ ! -f "$object" ]; then
        cc=$(echo "$name" | sed -n 's/.*__[a-z]*_*\([0-9]*\)a\{0,1\}_.*/\1/p')
        ring=$(sed -n 's/.*extern __shared__ *\(__align__(\([0-9]*\))\)* .* \([A-Za-z_][A-Za-z_0-9]*\)\[\];.*/EMUL_RING(\3, \2)/p' "$source" |
            sed 's/, )/, 16)/' | head -n 1)
        cluster=$(sed -n 's/.*__cluster_dims__ *(\([^()]*\)).*/\1/p' "$source" | head -n 1)
        if [ -z "$cluster" ] && grep -q '__cluster_dims__ *(' "$source"; then
            echo "compile.sh: $1: __cluster_dims__ wants its numbers on its line, without parentheses of their own" >&2
            return 1
        fi
        {
            echo '#include "emul/prelude.cuh"'
            echo "#include \"$source\""
            echo '#include "emul/kernel.cuh"'
            echo "EMUL_CLUSTER($cluster)"
            echo "${ring:-EMUL_NO_RING}"
            echo "EMUL_KERNEL($symbol)"
        } >"$object.$$.cpp"
        "$cxx" $flags -I"$output/source" -I"$beside" -D__CUDA_ARCH__="${cc:-90}0" -o "$object.$$" "$object.$$.cpp" "$engine" -Wl,-rpath,"$(dirname "$engine")" ||
            { echo "compile.sh: $name does not compile; $object.$$.cpp includes it" >&2; return 1; }
        rm -f "$object.$$.cpp"
        mv "$object.$$" "$object"
    fi
    ln -sf "$object" "$output/$symbol.so"
}

for source in "$@"; do
    compile_one "$source"
done
