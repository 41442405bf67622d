#!/bin/sh
# Errors of 8-bit attention over thousands of keys by the kernels' own code on the CPU: not above those that bench/results has from a GPU, on the
# same inputs. The verifier's tolerances have room for other inputs, which hides what a change of rounding costs.
#   attn_fwd_errors.sh BUILD OUT
# Exit status 77: there is no C++ compiler.
set -eu
emul=$(cd "$(dirname "$0")/.." && pwd) root=$(cd "$(dirname "$0")/../../.." && pwd)
build=$1 out=$2 recorded=$root/bench/results/sm90_132sm/numerics.csv status=0
for width in 128 64; do
    work=$out/d$width
    mkdir -p "$work"
    echo 'batch=1 num_q_heads=1 q_len=64 kv_len=64' >"$work/verify.txt"
    grep -E "^e4m3-D$width-N(4096-(ones|mean1|normal)|16384-normal):" "$root/bench/shapes/attn_fwd_numerics.txt" |
        sed 's/ @every//' >"$work/hard.txt"
    code=0
    "$emul/emulate.sh" -b "$build" -o "$work" -f attn_fwd -m eager,ahead -l "$work/verify.txt" \
        "attn_fwd_e4m3_d${width}_full__sm90a_wgmma_*_one" >"$work/emulate.log" 2>&1 || code=$?
    if [ $code != 0 ]; then
        cat "$work/emulate.log"
        exit $code
    fi
    rm -rf "$work/results"
    GEN_LIBCUDA=$build/lib/libsim_cuda.so SIM_KERNELS=$work/kernels SIM_CC=90 SIM_SMS=2 EMUL_MODE=eager,ahead \
        "$build/libexec/attngen/attngen-bench" numerics --product "$work/emul.fatbin" --families attn_fwd --list "$work/hard.txt" \
        --results "$work/results" >"$work/numerics.log" 2>&1 || { cat "$work/numerics.log"; exit 1; }
    [ "$(grep -c _wgmma_ "$work/numerics.log")" = "$(wc -l <"$work/hard.txt")" ] || { cat "$work/numerics.log"; exit 1; }
    for name in $(cut -d: -f1 "$work/hard.txt"); do
        here=$(cat "$work"/results/*/numerics.csv | awk -F, -v n="$name" '$2 == n { print $3 }')
        gpu=$(awk -F, -v n="$name" '$2 == n { print $3 }' "$recorded")
        echo "$name: $here, on a GPU $gpu"
        # Half a percent and 10^-5: the order of sums is not the same.
        awk -v a="${here:-none}" -v b="${gpu:-none}" 'BEGIN { exit !(a != "none" && b != "none" && a + 0 <= b * 1.005 + 1e-5) }' ||
            status=1
    done
done
exit $status
