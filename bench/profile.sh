#!/bin/sh
# Profiles the chosen plan of some cases with Nsight Compute and writes a CSV of the figures that show how far it is from
# the hardware: bench/results/<class>/<family>_ncu.csv.
#
#   bench/profile.sh OUTPUT.csv [CASE...]
#
# BENCH: the benchmark program (default: attngen-bench beside the build); PRODUCT, TABLE, DEVICE and COMMIT: its options
# --product, --table, --device and --commit.
set -eu
command="${TABLE:+TABLE=$TABLE }bench/profile.sh $*"
here=$(cd "$(dirname "$0")" && pwd)
output=${1:?"usage: bench/profile.sh OUTPUT.csv [CASE...]"}
shift
[ $# -gt 0 ] || set -- B64-H64-K128-V128-vk B128-H64-K128-V128-vk B256-H64-K128-V128-vk
bench=${BENCH:-$here/../build/libexec/attngen/attngen-bench}
[ -x "$bench" ] || { echo "profile.sh: no benchmark program at $bench; set BENCH" >&2; exit 1; }
command -v ncu >/dev/null || { echo "profile.sh: ncu is not on PATH" >&2; exit 1; }

metrics=gpu__time_duration.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed
metrics=$metrics,dram__bytes_read.sum,dram__bytes_write.sum,dram__bytes.sum.per_second
metrics=$metrics,sm__warps_active.avg.pct_of_peak_sustained_active,sm__maximum_warps_per_active_cycle_pct
metrics=$metrics,lts__t_sector_hit_rate.pct,launch__registers_per_thread,launch__waves_per_multiprocessor
metrics=$metrics,launch__shared_mem_per_block_dynamic,launch__shared_mem_per_block_static
metrics=$metrics,launch__grid_size,launch__block_size,sm__inst_executed.avg.per_cycle_active
for reason in long_scoreboard short_scoreboard barrier membar wait math_pipe_throttle lg_throttle mio_throttle \
    not_selected selected no_instruction dispatch_stall drain branch_resolving imc_miss sleeping tex_throttle misc; do
    metrics=$metrics,smsp__average_warps_issue_stalled_${reason}_per_issue_active.ratio
done

raw=$(mktemp)
trap 'rm -f "$raw" "$raw.case" "$output.tmp"' EXIT
run_bench() {
    "$@" ${PRODUCT:+--product "$PRODUCT"} ${TABLE:+--table "$TABLE"} ${DEVICE:+--device "$DEVICE"} ${COMMIT:+--commit "$COMMIT"}
}
# Whose figures these are, as in the other result files, but for the command.
run_bench "$bench" header >"$raw.case"
grep -v '^# command:' "$raw.case" >"$raw"
echo "# command: $command" >>"$raw"
echo "# method: ncu --clock-control none; the median over 4 launches after 4 to warm up" >>"$raw"
for case in "$@"; do
    # The program launches 4 times to warm up and 4 times to be profiled.
    run_bench ncu --clock-control none --csv --page raw --print-units base --launch-skip 4 --launch-count 4 \
        --metrics "$metrics" "$bench" --profile "$case" >"$raw.case"
    echo "@case $case" >>"$raw"
    cat "$raw.case" >>"$raw"
done
python3 "$here/ncu_to_csv.py" "$raw" >"$output.tmp"
mv "$output.tmp" "$output"
echo "wrote $output"
