#!/bin/sh
# The whole road in one command: sets the machine up, builds the generator and
# the runtime, generates, compiles and packs the kernels, selects a variant for
# a problem on a GPU, runs it (on the GPU where there is one, else the
# reference on the CPU) and says what was chosen and why.
#
#     scripts/demo.sh
#     scripts/demo.sh --gpu h20 la_decode batch=16 num_qk_heads=32 head_dim=128 layout=kv
#
# The arguments go to `attngen select`; a GPU is named (h200, h20, a100, ...,
# or architecture and SMs as sm_90:78) and need not be here. The default is an
# H200 and one token for 64 requests of MiniMax-Text-01.
set -eu
cd "$(dirname "$0")/.."

case ${1:-} in
-h | --help)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' scripts/demo.sh
    exit 0
    ;;
esac
[ $# -gt 0 ] || set -- --gpu h200 la_decode batch=64 num_qk_heads=64 head_dim=128 layout=vk

cuda=$(scripts/setup.sh)
cmake --preset default -DATTNGEN_PRODUCT=ON -DCUDAToolkit_ROOT="$cuda" >build-demo.log 2>&1 || {
    cat build-demo.log >&2
    exit 1
}
rm -f build-demo.log
echo "== build: generator and runtime"
cmake --build build --target all
echo "== product"
ls -l build/attngen.fatbin
build/bin/attngen list keys
echo "== select: attngen select $*"
# A table has rows for variants of targets that this product was not built for. Selection passes them over, which is
# no fault, so their number is left out here.
build/bin/attngen select "$@" >build/demo.txt
sed -i 's/^\(table  *[^:]*: [0-9]* rows in use\),.*/\1; those of variants that this product lacks are passed over/' build/demo.txt
head -n 25 build/demo.txt
lines=$(wc -l <build/demo.txt)
[ "$lines" -le 25 ] || echo "       ... and $((lines - 25)) more (build/demo.txt)"
echo "== run: attngen select --brief --run $*"
build/bin/attngen select --brief --run "$@"
