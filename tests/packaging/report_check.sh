#!/bin/sh
# Does bench/report.py --check find what is not fresh? In a copy of the tree's documents and results.
#
#     report_check.sh SOURCE_FOLDER
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/generated"
cp -R "$1/bench" "$work/bench"
cp "$1/README.md" "$work"
cp "$1/generated/catalog.tsv" "$work/generated"
cd "$work"

expect() { # STATUS PATTERN WHAT
    python3 bench/report.py --check >log 2>&1 && found=0 || found=1
    if [ "$found" != "$1" ] || ! { [ -z "$2" ] || grep -q "$2" log; }; then
        echo "FAILED: $3: exit status $found" >&2
        cat log >&2
        exit 1
    fi
}

expect 0 '' "the tree as it is"
cp bench/results/sm90_132sm/la_decode.csv kept
# One digit of one figure that all three documents show: the report, README.md and a plot.
sed -i '/^B64-H64-K128-V128-vk,.*,inplace-copy,/s/,0\.9[0-9]*,/,0.9001,/' bench/results/sm90_132sm/la_decode.csv
cmp -s kept bench/results/sm90_132sm/la_decode.csv && { echo "FAILED: the results have no such row" >&2; exit 1; }
expect 1 'README.md.s tables are not' "another figure, in README.md"
expect 1 'BENCHMARK_H200.md is not' "another figure, in the report"
expect 1 'plots/la_decode_sm90_132sm.png does not show' "another figure, in a plot"
python3 bench/report.py --no-plots >/dev/null
expect 1 'plots/la_decode_sm90_132sm.png does not show' "a plot that was not drawn again"
grep -q '| 90.0 % of the in-place copy |' README.md || { echo "FAILED: README.md was not refreshed" >&2; exit 1; }
mv kept bench/results/sm90_132sm/la_decode.csv
python3 bench/report.py --no-plots >/dev/null
expect 0 '' "what was refreshed"
cp bench/plots/attn_fwd_sm90_132sm.png bench/plots/other.png
expect 1 'plots/other.png is shown nowhere' "a plot too many"
rm bench/plots/other.png bench/plots/attn_fwd_sm90_132sm.png
expect 1 'plots/attn_fwd_sm90_132sm.png is missing' "a plot too few"
sed -i '1d' bench/results/sm90_132sm/mla_decode.csv
sed -i 's/^B128-N4096-H16-P64-T1-bf16,/other,/' bench/results/sm90_132sm/mla_decode.csv
expect 1 'has no device time of B128-N4096-H16-P64-T1-bf16' "a case of README.md that is not in the results"
echo "passed"
