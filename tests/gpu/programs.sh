#!/bin/sh
# The bench programs from end to end on a libcuda that computes, with harm done to them on purpose. No number made here
# means anything: everything goes to a scratch folder.
#   programs.sh PROGRAMS_DIR PRODUCT LIBCUDA SCRATCH
set -u
bin=$1 product=$2 scratch=$4
export GEN_LIBCUDA="$3" ATTNGEN_PRODUCT="$product" SIM_LIMIT=40
rm -rf "$scratch"
mkdir -p "$scratch"
failed=0
# check STATUS PATTERN COMMAND...: that exit status, and the pattern in the output.
check() {
    want=$1 pattern=$2
    shift 2
    "$@" >"$scratch/log" 2>&1
    got=$?
    if [ $got -ne "$want" ] || ! grep -q -e "$pattern" "$scratch/log"; then
        echo "FAILED: $* (status $got, wanted $want, output without '$pattern')"
        tail -n 5 "$scratch/log"
        failed=1
    fi
}
key=la_decode_bf16_d64_vk
only=$("$bin/attngen-verify" --keys $key --list "$(dirname "$0")/tiny_verify.txt" --all | awk -F'\t' '$1 == "ok" && !found++ { print $2 }')
[ -n "$only" ] || { echo "no variant of $key passes"; exit 1; }

check 0 "^chosen  *la_decode_bf16_d128_vk__" "$bin/attngen-select" --gpu h200 la_decode batch=2 num_qk_heads=4 --brief
check 0 "within the family's tolerance" "$bin/attngen-select" --run --brief la_decode batch=2 num_qk_heads=4
check 1 "unknown family 'nothing'" "$bin/attngen-select" nothing
check 0 " 0 failed" "$bin/attngen-verify" --sanitizer --keys $key
for kind in wrong guard input stray racy lost launch hang; do
    check 1 "^FAILED" env SIM_FAULT="$only:$kind" "$bin/attngen-verify" --keys $key --only "$only" --patience 2 \
        --list "$(dirname "$0")/tiny_verify.txt"
done
check 1 "no variant of" "$bin/attngen-verify" --only nothing
table=$scratch/table.tsv
check 0 "buckets measured, 0 kept" env SIM_FAULT="$only:wrong" "$bin/attngen-tune" --quick --shapes --keys $key --output "$table"
grep -q "^# failed: $only: " "$table" || { echo "FAILED: the refused variant is not in the table"; failed=1; }
check 0 "0 buckets measured, 3 kept" "$bin/attngen-tune" --quick --shapes --keys $key --output "$table"
check 0 "sm90_80sm" "$bin/attngen-tune" --quick --shapes --keys $key --sms 80 --output "$scratch/80.tsv"
grep -q "^# num_sms: 80" "$scratch/80.tsv" || { echo "FAILED: the green context's table"; failed=1; }
check 0 "measured on this class" "$bin/attngen-select" --table "$table" --brief la_decode batch=64 head_dim=64
printf 'peer\tcase\tms\terr\nfla-graph\tB1-H64-K64-V64-vk\t1\t1e-3\nfla-eager\tB1-H64-K64-V64-vk\t1\t-\n' >"$scratch/peers.tsv"
check 0 "wrote" "$bin/attngen-bench" cases --quick --cases 'B1-H64-K64*' --check-mib 0 --results "$scratch/results" --peer-file "$scratch/peers.tsv"
[ "$(grep -c '^B1-H64-K64-V64-vk,.*,\(inplace-copy\|fla-graph\|fla-eager\),' "$scratch/results/sm90_132sm/la_decode.csv")" = 3 ] ||
    { echo "FAILED: a row for each peer"; failed=1; }
check 1 "WRONG" env SIM_LIMIT=0 "$bin/attngen-bench" cases --quick --cases 'B1-H64-K64*' --results "$scratch/wrong"
check 0 "B1-H64-K64-V64-vk" "$bin/attngen-bench" --profile B1-H64-K64-V64-vk
check 0 "la_decode: 3 problems, geometric mean" "$bin/attngen-bench" regret --quick --count 3 --results "$scratch/results"
check 0 "bare_first_launch" env SIM_LIMIT=0 "$bin/attngen-bench" host --quick --results "$scratch/results"
for row in select select_launch cuLaunchKernel open first_launch bare_first_launch; do
    grep -q "^$row,[0-9.]*,[0-9.]*,[^,]*$" "$scratch/results/sm90_132sm/host.csv" || { echo "FAILED: host.csv's row $row"; failed=1; }
done
python3 "$(dirname "$0")/../../bench/report.py" --no-plots --results "$scratch/results" --output "$scratch/report.md" >"$scratch/log" 2>&1 &&
    grep -q "^| B1-H64-K64-V64-vk |" "$scratch/report.md" || { echo "FAILED: the report"; cat "$scratch/log"; failed=1; }
[ $failed = 0 ] && echo "all programs did what they should"
exit $failed
