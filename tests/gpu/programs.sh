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
only=$("$bin/attngen-verify" --families la_decode --keys $key --list "$(dirname "$0")/tiny_verify.txt" --all | awk -F'\t' '$1 == "ok" && !found++ { print $2 }')
[ -n "$only" ] || { echo "no variant of $key passes"; exit 1; }

check 0 "^chosen  *la_decode_bf16_d128_vk__" "$bin/attngen-select" --gpu h200 la_decode batch=2 num_qk_heads=4 --brief
check 0 "attngen-select: --gpu sm_90 names no number of SMs: class sm90_132sm is taken" \
    "$bin/attngen-select" --gpu sm_90 la_decode batch=2 num_qk_heads=4 --brief
check 0 "within the family's tolerance" "$bin/attngen-select" --run --brief la_decode batch=2 num_qk_heads=4
check 1 "unknown family 'nothing'" "$bin/attngen-select" nothing
check 0 " 0 failed" "$bin/attngen-verify" --families la_decode --sanitizer --keys $key
for kind in wrong guard input stray racy lost launch hang; do
    check 1 "^FAILED" env SIM_FAULT="$only:$kind" "$bin/attngen-verify" --families la_decode --keys $key --only "$only" --patience 2 \
        --list "$(dirname "$0")/tiny_verify.txt"
done
# What a worker had seen counts after its end, too: here the last variant ends it.
echo 'batch=2 num_qk_heads=1' >"$scratch/one.txt"
checks() { "$bin/attngen-verify" --families la_decode --keys $key --list "$scratch/one.txt" "$@"; }
last=$(checks --all | awk -F'\t' '$1 == "ok" { name = $2 } END { print name }')
count() { sed -n 's/^# \([0-9]* checks of .*\) cases: .*/\1/p'; }
[ -n "$(checks | count)" ] && [ "$(checks | count)" = "$(SIM_FAULT=$last:lost checks | count)" ] ||
    { echo "FAILED: checks are lost with a worker"; failed=1; }
check 1 "no variant of" "$bin/attngen-verify" --families la_decode --only nothing
# Parts: each check of the whole is in one, and no part has them all.
passed() { "$bin/attngen-verify" --families la_decode --keys $key --list "$(dirname "$0")/tiny_verify.txt" --all "$@" | grep '^ok' | cut -f 1-3; }
passed | sort >"$scratch/whole"
for i in 0 1 2; do passed --part $i/3 | tee "$scratch/part$i"; done | sort >"$scratch/parts"
{ cmp -s "$scratch/whole" "$scratch/parts" && ! cmp -s "$scratch/whole" "$scratch/part0" && [ -s "$scratch/part1" ]; } ||
    { echo "FAILED: the parts' checks are not those of the whole"; failed=1; }
check 1 "^attngen-verify: --part is '3/3'; it takes I/N" "$bin/attngen-verify" --part 3/3
check 1 "^attngen-verify: --part is '/3'; it takes I/N" "$bin/attngen-verify" --part /3
# A word that is not known: file, line, word and what is allowed.
printf 'batch=2 num_qk_heads=1\nbatch=2 num_qk_heads=2 @scatterd\n' >"$scratch/words.txt"
check 1 "words.txt:2: unknown word '@scatterd' in a list of shapes; allowed: @scattered, @serial" \
    "$bin/attngen-bench" cases --families la_decode --list "$scratch/words.txt" --results "$scratch/words"
check 1 "words.txt:2: unknown word '@scatterd' in a list of checks; allowed: @pad, @nan, @poison, @tiny, @invariant, @steps=N, @data=normal" \
    "$bin/attngen-verify" --families la_decode --list "$scratch/words.txt"
check 1 "'@pad' in a list of shapes" "$bin/attngen-select" la_decode batch=2 @pad
check 1 "^attngen-tune: --sms takes a whole number from 0 to 2147483647, found '-80'" "$bin/attngen-tune" --families la_decode --sms -80
check 1 "^attngen-tune: --seconds takes a number from 0, found 'nan'" "$bin/attngen-tune" --families la_decode --seconds nan
table=$scratch/table.tsv
check 0 "buckets measured, 0 kept" env SIM_FAULT="$only:wrong" "$bin/attngen-tune" --families la_decode --quick --shapes --keys $key --output "$table"
grep -q "^# failed: $only: " "$table" || { echo "FAILED: the refused variant is not in the table"; failed=1; }
# Going on: rows and failures stay; another class's table, or what is none, is left alone; a variant that passes again is
# no failure any more.
rows() { grep -c "^la_decode	$1" "$table"; }
check 0 "0 buckets measured, 3 kept" "$bin/attngen-tune" --families la_decode --quick --shapes --keys $key --output "$table"
grep -q "^# failed: $only: " "$table" || { echo "FAILED: the refused variant is not in the table that was gone on with"; failed=1; }
cp "$table" "$scratch/before.tsv"
check 1 "table.tsv is a table of class sm90_132sm, this GPU's is sm90_80sm; allowed: .*--output" \
    "$bin/attngen-tune" --families la_decode --quick --shapes --keys $key --sms 80 --output "$table"
check 1 "is a table of class sm90_132sm" "$bin/attngen-tune" --families la_decode --quick --shapes --keys $key --sms 80 --force --output "$table"
cmp -s "$table" "$scratch/before.tsv" || { echo "FAILED: another class's table was written to"; failed=1; }
check 1 "words.txt has no line \"# class: sm90_132sm\"" "$bin/attngen-tune" --families la_decode --quick --shapes --keys $key --output "$scratch/words.txt"
check 1 "cannot read $scratch: " "$bin/attngen-tune" --families la_decode --quick --shapes --keys $key --output "$scratch"
# What a service logged is what is listed and measured; a dry run writes nothing and needs no GPU.
GEN_LOG=select "$bin/attngen-select" --gpu h200 --brief la_decode batch=3 num_qk_heads=4 head_dim=64 layout=vk >/dev/null 2>"$scratch/service.log"
check 0 "^new	la_decode	$key	states=12	batch=3 " env GEN_LIBCUDA=/nonexistent "$bin/attngen-tune" --families la_decode --list \
    --from-log "$scratch/service.log" --gpu h200 --output "$scratch/logged.tsv"
check 0 "1 buckets to measure, 0 kept.* at least .* GPU-minutes by the families' estimates" env GEN_LIBCUDA=/nonexistent \
    "$bin/attngen-tune" --families la_decode --dry-run --from-log "$scratch/service.log" --gpu h200 --output "$scratch/logged.tsv"
[ ! -e "$scratch/logged.tsv" ] || { echo "FAILED: a dry run wrote"; failed=1; }
check 0 "1 buckets measured, 0 kept" "$bin/attngen-tune" --families la_decode --quick --from-log "$scratch/service.log" --output "$scratch/logged.tsv"
check 0 "0 buckets to measure, 1 kept.* s a bucket, as the run took" "$bin/attngen-tune" --families la_decode --dry-run \
    --from-log "$scratch/service.log" --output "$scratch/logged.tsv"
check 1 "the log has no line .select family" "$bin/attngen-tune" --families la_decode --from-log "$scratch/words.txt"
check 1 "^attngen-tune: --from-log and --grid exclude each other" "$bin/attngen-tune" --grid --from-log "$scratch/service.log"
check 1 "allowed: with --list or --dry-run" "$bin/attngen-tune" --gpu h200
other=la_decode_fp16_d64_vk
check 0 "buckets measured, 0 kept" "$bin/attngen-tune" --families la_decode --quick --grid --keys $other --only '*_one' --output "$table"
check 0 "3 buckets measured, 0 kept" "$bin/attngen-tune" --families la_decode --quick --shapes --force --keys $key --output "$table"
# What the memory bounds does not rest, however long the option says.
check 0 "3 buckets measured, 0 kept" timeout 60 "$bin/attngen-tune" --families la_decode --quick --shapes --force --keys $key --rest 100000 --output "$table"
check 0 "^# rest_ms: 100000" grep "^# rest_ms" "$table"
check 1 "^attngen-tune: --rest takes a whole number from 0 to 2147483647, found '-1'" "$bin/attngen-tune" --families la_decode --rest -1
[ "$(rows $key)" = 3 ] && [ "$(rows $other)" -gt 3 ] || { echo "FAILED: --force of one key lost another's rows"; failed=1; }
! grep -q "^# failed: " "$table" || { echo "FAILED: a variant that passes is still said to fail"; failed=1; }
# --refresh: a stale row is measured between its variant and its runner-up, whoever of them wins. Two that all's race
# does not pick tell who took part; digests, drivers and names are edited in the file.
refresh=$scratch/refresh.tsv
tune_refresh() { "$bin/attngen-tune" --families la_decode --quick --shapes --refresh --keys $key --output "$refresh" "$@"; }
first=$(awk -F'\t' -v key=$key '$2 == key { print $3 }' "$table" | sed -n 1p)
second=$(awk -F'\t' -v key=$key '$2 == key { print $3 }' "$table" | sed -n 2p)
third=$(awk -F'\t' -v key=$key '$2 == key { print $3 }' "$table" | sed -n 3p)
others=$(checks --all | awk -F'\t' 'NR == FNR { taken[$4]; taken[$7]; next } $1 == "ok" && !($2 in taken) && !seen[$2]++ { print $2 }' "$table" -)
one=$(echo "$others" | tail -n 1) two=$(echo "$others" | tail -n 2 | head -n 1)
[ -n "$one" ] && [ "$one" != "$two" ] || { echo "FAILED: no two variants that no row has"; failed=1; }
names() { awk -F'\t' -v key=$key -v problem="$1" '$2 == key && $3 == problem { print $4, $7 }' "$2"; }
# stale PROBLEM VARIANT RUNNER_UP COLUMN: the row of these names and of another source (9), machine code (10), toolkit (11) or driver (12).
stale() {
    awk -F'\t' -v OFS='\t' -v key=$key -v problem="$1" -v variant="$2" -v runner_up="$3" -v column="$4" \
        '$2 == key && $3 == problem { $4 = variant; $7 = runner_up; $column = "0000000000000000" } { print }' "$refresh" >"$refresh.new" &&
        mv "$refresh.new" "$refresh"
}
# is PROBLEM NAMES...: the row is of such a variant and runner-up.
is() {
    problem=$1 found=$(names "$1" "$refresh")
    shift
    for allowed in "$@"; do [ "$found" = "$allowed" ] && return; done
    echo "FAILED: the refreshed row of $problem has $found, not $*"
    failed=1
}
# is_of_all PROBLEM: all variants took part in its row's race.
is_of_all() {
    case "$(names "$1" "$refresh")" in
    '' | "$one "* | "$two "* | gone*) echo "FAILED: the row of $1 was not measured with all variants: $(names "$1" "$refresh")"; failed=1 ;;
    esac
}
# Another source or toolkit that makes the same machine code: nothing to measure.
cp "$table" "$refresh"
# shellcheck disable=SC2046 # two names
stale "$first" $(names "$first" "$table") 9
# shellcheck disable=SC2046
stale "$second" $(names "$second" "$table") 11
check 0 "^0 buckets measured, 3 kept, " tune_refresh
winner=$(names "$second" "$table" | cut -d ' ' -f 1)
check 1 "^attngen-tune: --refresh and --force exclude each other" tune_refresh --force
cp "$table" "$refresh"
stale "$first" "$one" "$two" 10
stale "$second" "$one" "$winner" 12
check 0 "^2 buckets measured, 1 kept, 0 not in the table, " tune_refresh
is "$first" "$one $two" "$two $one"
is "$second" "$winner $one"
[ "$(grep -v "^#\|	$first	\|	$second	" "$refresh")" = "$(grep -v "^#\|	$first	\|	$second	" "$table")" ] ||
    { echo "FAILED: --refresh changed rows that are fresh"; failed=1; }
check 0 "^0 buckets measured, 3 kept, 0 that nothing fits" "$bin/attngen-tune" --families la_decode --quick --shapes --keys $key --output "$refresh"
# A row that is missing stays so; a variant that the product lacks: all take part; a runner-up that it lacks is none, and no glob.
sed -i "/^la_decode	$key	$first	/d" "$refresh"
stale "$second" gone "$two" 10
stale "$third" "$one" '*' 10
check 0 "^2 buckets measured, 0 kept, 1 not in the table, " tune_refresh
[ -z "$(names "$first" "$refresh")" ] || { echo "FAILED: --refresh made a row"; failed=1; }
is_of_all "$second"
is "$third" "$one -"
# Refused on the way, before it is timed or then: as a runner-up it leaves the other one, as a row's variant it leaves all,
# also to the bucket whose row went with it.
for case in "wrong $one $two" "late $one $two" "capture $one $two" "wrong $two $one" "late $two $one" "capture $two $one"; do
    kind=${case%% *} pair=${case#* }
    cp "$table" "$refresh"
    # shellcheck disable=SC2086
    stale "$first" $pair 10
    stale "$second" "$two" "$one" 10
    stale "$third" "$two" "$one" 10
    check 0 "^3 buckets measured, 0 kept, 0 not in the table, 0 that nothing fits, 1 variants refused" env SIM_FAULT="$two:$kind" \
        "$bin/attngen-tune" --families la_decode --quick --shapes --refresh --keys $key --output "$refresh"
    if [ "$pair" = "$one $two" ]; then is "$first" "$one -"; else is_of_all "$first"; fi
    is_of_all "$second"
    is_of_all "$third"
done
# Without --shapes and --grid: rows of problems that neither names, too.
cp "$table" "$refresh"
awk -F'\t' -v OFS='\t' -v key=$key -v problem="$first" '$2 == key && $3 == problem { $3 = "states=40"; print }' "$table" >>"$refresh"
stale states=40 "$one" "$two" 9
check 0 "^1 buckets measured, 3 kept, [1-9][0-9]* not in the table, " "$bin/attngen-tune" --families la_decode --quick --refresh --keys $key --output "$refresh"
is states=40 "$one $two" "$two $one"
stale states=40 "$one" "$two" 9
check 0 "^0 buckets measured, 3 kept, 0 not in the table, " tune_refresh
# --only goes for the two as well.
cp "$table" "$refresh"
stale "$first" "$one" "$two" 10
check 0 "^1 buckets measured, 2 kept, 0 not in the table, " tune_refresh --only "$one"
is "$first" "$one -"
# A kernel that ruins the context after it passed verification: it alone is reported.
check 0 "1 variants refused" env SIM_FAULT="$only:late" "$bin/attngen-tune" --families la_decode --quick --shapes --force --keys $key --output "$table"
[ "$(grep "^# failed: " "$table")" = "# failed: $only: the GPU's context was lost (an illegal access)" ] ||
    { echo "FAILED: who lost the GPU:"; grep "^# failed: " "$table"; failed=1; }
check 0 "sm90_80sm" "$bin/attngen-tune" --families la_decode --quick --shapes --keys $key --sms 80 --output "$scratch/80.tsv"
grep -q "^# num_sms: 80" "$scratch/80.tsv" || { echo "FAILED: the green context's table"; failed=1; }
check 0 "measured on this class" "$bin/attngen-select" --table "$table" --brief la_decode batch=64 head_dim=64
printf 'peer\tcase\tms\terr\nfla-graph\tB1-H64-K64-V64-vk\t1\t1e-3\nfla-eager\tB1-H64-K64-V64-vk\t1\t-\n' >"$scratch/peers.tsv"
check 0 "wrote" "$bin/attngen-bench" cases --families la_decode --quick --cases 'B1-H64-K64*' --check-mib 0 --results "$scratch/results" --peer-file "$scratch/peers.tsv"
[ "$(grep -c '^B1-H64-K64-V64-vk,.*,\(inplace-copy\|fla-graph\|fla-eager\),' "$scratch/results/sm90_132sm/la_decode.csv")" = 3 ] ||
    { echo "FAILED: a row for each peer"; failed=1; }
# --keep: rows of cases that are not measured stay, with a note of whose they are; another GPU's file is refused.
kept=$scratch/kept/sm90_132sm/la_decode.csv
mkdir -p "$scratch/kept/sm90_132sm"
sed 's/^B1-H64-K64-V64-vk,/B9-H9-K9-V9-vk,/' "$scratch/results/sm90_132sm/la_decode.csv" >"$kept"
keep() { "$bin/attngen-bench" cases --families la_decode --quick --cases 'B1-H64-K64-V64-vk' --check-mib 0 --keep --results "$scratch/kept"; }
check 0 "wrote" keep
for row in '# kept: [1-9][0-9]* rows of cases that this run did not measure, as they were: commit -, 20..-..-..' 'B9-H9-K9-V9-vk,..*' 'B1-H64-K64-V64-vk,..*'; do
    grep -qx "$row" "$kept" || { echo "FAILED: la_decode.csv has no line '$row'"; failed=1; }
done
before=$(grep -c '^B' "$kept")
printf '%s\n%s' "$(sed '/^B9-/d' "$kept")" "$(grep '^B9-' "$kept")" >"$kept.cut" && mv "$kept.cut" "$kept" # no newline at its end
check 0 "wrote" keep
[ "$(grep -c '^B' "$kept")" = "$before" ] || { echo "FAILED: a case that is measured again has two rows"; failed=1; }
sed -i 's/^# gpu: .*/# gpu: NVIDIA H100 (sm90_132sm)/' "$kept"
check 1 "is of NVIDIA H100 .sm90_132sm., this GPU is NVIDIA H200 .*; --keep takes a file of the same one" keep
check 1 "^attngen-bench: --keep is for the job cases, found 'regret'" "$bin/attngen-bench" regret --keep
check 1 "la_decode: out of time, [1-9][0-9]* cases are not measured" "$bin/attngen-bench" cases --families la_decode --quick --seconds 1e-9 --results "$scratch/late"
[ ! -e "$scratch/late" ] || { echo "nothing was measured, and something was written"; failed=1; }
printf 'batch=3\nbatch=5 num_qk_heads=2\n' >"$scratch/drawn.txt"
check 0 "la_decode: 2 problems, geometric mean" "$bin/attngen-bench" regret --families la_decode --quick --list "$scratch/drawn.txt" --results "$scratch/drawn"
check 0 "^# method: the problems of a list; " cat "$scratch/drawn/sm90_132sm/regret.csv"
check 1 "la_decode: out of time, 3 problems are not measured" "$bin/attngen-bench" regret --families la_decode --quick --count 3 --seconds 1e-9 --results "$scratch/late"
check 1 "WRONG" env SIM_LIMIT=0 "$bin/attngen-bench" cases --families la_decode --quick --cases 'B1-H64-K64*' --results "$scratch/wrong"
check 0 "B1-H64-K64-V64-vk" "$bin/attngen-bench" --profile B1-H64-K64-V64-vk
# The rows of a family stay when another is measured.
mkdir -p "$scratch/results/sm90_132sm"
printf '# gpu: before\nfamily,problem,chosen,ms,best,best_ms,ratio\nother,p=1,a,1,b,1,1\nother,p=2,a,1,b,1,1\n# gpu: worse\nla_decode,p=1,a,1,b,1,9\n' \
    >"$scratch/results/sm90_132sm/regret.csv"
for time in first second; do
    check 0 "la_decode: 3 problems, geometric mean" "$bin/attngen-bench" regret --families la_decode --quick --count 3 --results "$scratch/results"
    check 0 "^family,problem 1 other 2 la_decode 3 gpu 2 before 1$" awk -F, 'NR == 1 { head = $1 "," $2 } $1 == "family" { heads++ }
        { rows[$1]++ } /^# gpu: / { gpus++ } /^# gpu: before/ { before++ }
        END { print head, heads, "other", rows["other"], "la_decode", rows["la_decode"], "gpu", gpus, "before", before }' \
        "$scratch/results/sm90_132sm/regret.csv"
done
# Hard cases: the rows of a family, all or none; other families' rows stay; a peer's error counts where its inputs are ours.
hard=$scratch/la_numerics.txt numerics=$scratch/hard/sm90_132sm/numerics.csv
printf 'plain: batch=2 num_qk_heads=1 head_dim=64\nsteps: batch=1 num_qk_heads=1 head_dim=64 @steps=20\nall: batch=1 num_qk_heads=1 head_dim=64 @every\n' >"$hard"
hard_cases() { "$bin/attngen-bench" numerics --families la_decode --list "$hard" --results "$scratch/hard" "$@"; }
mkdir -p "$scratch/hard/sm90_132sm"
printf 'family,case,error,peer,peer_error\n# gpu: before\nother,a,1,,\n# gpu: worse\nla_decode,plain,9,,\n' >"$numerics"
cp "$numerics" "$scratch/before.csv"
check 0 "1 of 3 cases were selected: not written" hard_cases --cases plain
check 1 "no results of la_decode are written" env SIM_FAULT="$only:lost" "$bin/attngen-bench" numerics --families la_decode --list "$hard" --results "$scratch/hard"
cmp -s "$numerics" "$scratch/before.csv" || { echo "FAILED: a part of the hard cases was written"; failed=1; }
printf '# family: la_decode\npeer\tcase\tms\terr\nother\tplain@0123456789abcdef\t-\t1e-3\n' >"$scratch/hard.tsv"
check 1 "other: left out, its inputs are plain@0123456789abcdef, ours plain@[0-9a-f]*$" hard_cases --peer-file "$scratch/hard.tsv"
ours=$(sed -n 's/.*, ours \(plain@[0-9a-f]*\)$/\1/p' "$scratch/log")
sed -i "s/plain@0123456789abcdef/$ours/" "$scratch/hard.tsv"
check 0 "^la_decode  *all  *[0-9.e-]*  worst of [0-9]*:  la_decode_bf16_d64_vk__" hard_cases --peer-file "$scratch/hard.tsv"
for row in 'other,a,1,,' 'la_decode,plain,[0-9.]*e-03,other,1.0000e-03' 'la_decode,steps,[0-9.]*e-03,,' 'la_decode,all,[0-9.]*e-03,,'; do
    [ "$(grep -c "^$row$" "$numerics")" = 1 ] || { echo "FAILED: numerics.csv has no row '$row'"; failed=1; }
done
[ "$(sed -n 1p "$numerics")" = family,case,error,peer,peer_error ] && [ "$(grep -c -v '^#' "$numerics")" = 5 ] || { echo "FAILED: rows of numerics.csv"; failed=1; }
check 1 "WRONG: .*more than one rounding" env SIM_FAULT="$only:wrong" "$bin/attngen-bench" numerics --families la_decode --list "$hard" --results "$scratch/hard"
check 0 "wrote" python3 "$(dirname "$0")/../../bench/report.py" --no-plots --results "$scratch/hard" --output "$scratch/hard.md"
grep -q "^| la_decode | all | [0-9.e+-]* |  |  |$" "$scratch/hard.md" || { echo "FAILED: the report's hard cases"; failed=1; }
check 1 "la_decode's list of hard cases is malformed" "$bin/attngen-bench" numerics --families la_decode --list "$scratch/words.txt"
check 1 "columns: which? Give --column NAME=GLOB" "$bin/attngen-bench" columns --families la_decode --results "$scratch/results"
check 1 "takes NAME=GLOB without commas, found 'ld'" "$bin/attngen-bench" columns --families la_decode --column ld
check 1 "^attngen-bench: --cases is given twice; allowed: once" "$bin/attngen-bench" cases --cases 'B1-*' --cases='B2-*'
check 1 "two are called 'ld'" "$bin/attngen-bench" columns --families la_decode --column 'ld=*_ld_*' --column 'ld=*_bulk_*'
check 1 "two are called 'picked'" "$bin/attngen-bench" columns --families la_decode --column 'picked=*_ld_*' --picked
check 1 "one family at a time" "$bin/attngen-bench" columns --column 'ld=*'
check 0 "wrote .*la_decode_columns.csv" "$bin/attngen-bench" columns --families la_decode --quick --cases 'B1-H64-K64-V64-vk' \
    --column 'ld=*_ld_*' --column 'none=nothing*' --column 'bulk=*_bulk_*' --picked --results "$scratch/columns"
check 0 "^$("$bin/attngen-select" --gpu h200 --brief la_decode batch=1 num_qk_heads=64 head_dim=64 layout=vk | grep -o 'la_decode_[^ ]*__[^ ]*' | head -n 1)$" \
    awk -F, '$2 == "picked" { print $3 }' "$scratch/columns/sm90_132sm/la_decode_columns.csv"
check 0 "^ld bulk picked $" awk -F, '/^B1/ { printf "%s ", $2 } END { print "" }' "$scratch/columns/sm90_132sm/la_decode_columns.csv"
# With --rest the six samples that --quick takes of one variant come after so long a rest each, and the file's head says so.
check 0 "^# method: .*; no rests: " grep "^# method" "$scratch/columns/sm90_132sm/la_decode_columns.csv"
one=$(awk -F, '/^B1/ && !found++ { print $3 }' "$scratch/columns/sm90_132sm/la_decode_columns.csv") start=$(date +%s)
check 0 "wrote .*la_decode_columns.csv" "$bin/attngen-bench" columns --families la_decode --quick --cases 'B1-H64-K64-V64-vk' --rest 400 \
    --column "one=$one" --results "$scratch/columns"
[ $(($(date +%s) - start)) -ge 2 ] || { echo "FAILED: columns --rest 400 did not rest"; failed=1; }
check 0 "^# method: .*; every sample of every row after 400 ms of rest and an untimed replay" \
    grep "^# method" "$scratch/columns/sm90_132sm/la_decode_columns.csv"
check 1 "B1-H64-K64-V64-vk, ld: .*said the simulation" env SIM_FAULT="la_decode:launch" "$bin/attngen-bench" columns --families la_decode --quick --cases 'B1-H64-K64-V64-vk' \
    --column 'ld=*_ld_*' --results "$scratch/columns"
check 0 "bare_first_launch" env SIM_LIMIT=0 "$bin/attngen-bench" host --families la_decode --quick --results "$scratch/results"
for row in select select_repeat select_8_threads select_launch cuLaunchKernel select_launch_la_decode cuLaunchKernel_la_decode open first_launch \
    bare_first_launch; do
    grep -q "^$row,[0-9.]*,[0-9.]*,[^,]*$" "$scratch/results/sm90_132sm/host.csv" || { echo "FAILED: host.csv's row $row"; failed=1; }
done
# Profiles and peers: an ncu and a peer that say what they were asked, on the device that was named.
check 0 "^# gpu: NVIDIA H200 (simulated) (sm90_132sm)$" "$bin/attngen-bench" header
mkdir -p "$scratch/stubs" "$scratch/all"
cat >"$scratch/stubs/ncu" <<'END'
#!/bin/sh
echo "$*" >>"$STUB_LOG"
while [ "${1#*attngen-bench}" = "$1" ]; do shift; done
"$@" >"$STUB_LOG.case" || exit 1
echo '"ID","Kernel Name","gpu__time_duration.sum"'
echo '"","","ns"'
echo "\"0\",\"$(cut -f 2 "$STUB_LOG.case")(params)\",\"2,500\""
END
cat >"$scratch/stubs/python3" <<'END'
#!/bin/sh
case $1 in
*/peers/*) echo "peer $*" >>"$STUB_LOG" && shift && exec "$REAL_PYTHON" "$PEER" --list "$@" ;;
esac
exec "$REAL_PYTHON" "$@"
END
chmod +x "$scratch/stubs/ncu" "$scratch/stubs/python3"
bench=$(cd "$(dirname "$0")/../../bench" && pwd)
check 0 "ncu  *ok" env PATH="$scratch/stubs:$PATH" STUB_LOG="$scratch/stubs/log" REAL_PYTHON="$(command -v python3)" \
    PEER="$bench/peers/fla_la_decode.py" BIN="$bin" PRODUCT="$product" OUT="$scratch/all" COMMIT=0123abc DEVICE=0 "$bench/run_all.sh" peers ncu
grep -q "^peer .*/fla_la_decode.py --device 0$" "$scratch/stubs/log" || { echo "FAILED: the peer's device"; failed=1; }
[ "$(grep -c -e "--profile B[0-9]*-H64-K128-V128-vk .*--device 0" "$scratch/stubs/log")" = 3 ] || { echo "FAILED: the profiled device"; failed=1; }
profile=$scratch/all/bench/results/sm90_132sm/la_decode_ncu.csv
for line in '# gpu: NVIDIA H200 (simulated) (sm90_132sm)' '# driver: .*(CUDA 13.0)' '# toolkit: ..*' '# commit: 0123abc' '# date: ..*' \
    '# command: bench/profile.sh bench/results/sm90_132sm/la_decode_ncu.csv' '# method: ncu ..*' 'case,variant,time_us' \
    'B64-H64-K128-V128-vk,la_decode_bf16_d128_vk__[a-z0-9_]*,2.5'; do
    grep -q "^$line$" "$profile" || { echo "FAILED: the profile has no line '$line'"; failed=1; }
done
[ "$(grep -c '^# command:' "$profile")" = 1 ] || { echo "FAILED: one command in the profile's head"; failed=1; }
python3 "$bench/report.py" --no-plots --results "$scratch/results" --output "$scratch/report.md" >"$scratch/log" 2>&1 &&
    grep -q "^| B1-H64-K64-V64-vk |" "$scratch/report.md" || { echo "FAILED: the report"; cat "$scratch/log"; failed=1; }
[ $failed = 0 ] && echo "all programs did what they should"
exit $failed
