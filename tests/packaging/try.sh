#!/bin/sh
# `attngen try`: what it says of two versions of a template, and that it runs them: on a simulated GPU beside each other,
# without one in the emulation.
#
#     try.sh ATTNGEN SOURCE_FOLDER SIM_CUDA
set -eu
attngen=$1 source=$2 sim=$3 failed=0
command -v git >/dev/null || { echo "no git"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cp -r "$source/tests/gen/fixtures" "$scratch/x"
git -C "$scratch/x" -c init.defaultBranch=main init -q
commit() {
    git -C "$scratch/x" add -A
    git -C "$scratch/x" -c user.name=test -c user.email=test@localhost commit -qm "$1"
}
commit "x: first"
export ATTNGEN_CACHE="$scratch/cache" GEN_LIBCUDA=/nonexistent

# expect STATUS PATTERN COMMAND...: the exit status, and a line of the output.
expect() {
    status=$1 pattern=$2
    shift 2
    found=0
    "$@" >"$scratch/log" 2>&1 || found=$?
    [ "$found" = "$status" ] && grep -q -- "$pattern" "$scratch/log" && return
    echo "FAILED: $*: exit status $found, expected $status with '$pattern' in:"
    cat "$scratch/log"
    failed=1
}
try() { "$attngen" try "$@" --templates "$scratch/x" -t sm_90a --no-run; }
# cell VARIANT COLUMN...: of the last table.
cell() {
    variant=$1
    shift
    for column in "$@"; do
        awk -F'\t' -v variant="$variant" -v column="$column" \
            'NR == FNR && $1 == "name" { for (i = 1; i <= NF; i++) if ($i == column) at = i } $1 == variant { printf "%s ", $at }' "$scratch/log"
    done
}
holds() { [ "$1" = "$2" ] || { echo "FAILED: found '$1', expected '$2'"; failed=1; }; }

one=tiny_fp32__sm90a_v4_w4_plain two=tiny_fp32__sm90a_v4_w4_ring
expect 0 "^$one	same source	" try "tiny_fp32__sm90a_v4_w4_*" --format tsv
holds "$(wc -l <"$scratch/log")" 3
registers=$(cell $one registers) instructions=$(cell $one instructions)
[ "${registers:-0}" -gt 7 ] && [ "${instructions:-0}" -gt 7 ] || { echo "FAILED: nothing was counted: $registers, $instructions"; failed=1; }
# More work is more instructions, on this side alone; without the run's options no program but git and the compiler is needed.
sed -i '0,/^{$/s//{\n    __syncthreads();\n    if (blockIdx.y == 7) __trap();/' "$scratch/x/tiny/tiny.cu.in"
expect 0 "^$one	changed	" try $one --format tsv
holds "$(cell $one instructions_was)" "$instructions"
[ "$(cell $one instructions)" -gt "$instructions" ] || { echo "FAILED: as many instructions"; failed=1; }
expect 0 "  changed  .* $(echo $instructions) -> " try $one
expect 0 "\"verdict\": *\"changed\"" try $one --format json
# What only one side has; what a gate keeps out is a verdict.
sed -i 's/values = { 1, 2, 4, 8 }/values = { 1, 2, 4 }/; s/max_registers = 64/max_registers = v.width == 4 and 2 or 64/' "$scratch/x/tiny/family.lua"
sed -i 's/values = { "plain", "ring" }/values = { "plain", "ring", "late" }/' "$scratch/x/tiny/family.lua"
expect 0 "^tiny_fp32__sm90a_v8_w4_plain	gone	" try 'tiny_fp32__sm90a_v?_w4_*' --format tsv
grep -q '^tiny_fp32__sm90a_v2_w4_late	new, built	-	' "$scratch/log" || { echo "FAILED: no new one in:"; cat "$scratch/log"; failed=1; }
expect 0 "^$two	refused: uses [0-9]* registers, its plan allows 2	" try $two --format tsv
# Another commit, none, and what is no commit.
git -C "$scratch/x" checkout -q .
sed -i '0,/^{$/s//{\n    __syncthreads();/' "$scratch/x/tiny/tiny.cu.in"
commit "x: second"
expect 0 "^$one	same source	" try $one --format tsv
expect 0 "^$one	changed	" try $one --format tsv --against HEAD~1
expect 0 "^$one	built	[0-9a-f]*	" try $one --format tsv --against none
expect 1 "git has no templates of 'nothing'" try $one --against nothing
expect 1 "matches none of [0-9]* variants" try 'tiny_fp16*'
expect 1 "which variants" try count=3

# The run, of a kernel that the simulation knows: verified, then timed beside the other version.
variant=la_decode_bf16_d64_vk__sm90a_ld_tost_t16_w4_s1_b4_k1_stream_one
mkdir "$scratch/y"
cp -r "$source/templates" "$scratch/y/templates"
cp -r "$scratch/x/.git" "$scratch/y/.git"
git -C "$scratch/y" add -A
git -C "$scratch/y" -c user.name=test -c user.email=test@localhost commit -qm "y: templates"
run() { "$attngen" try $variant batch=2 num_qk_heads=2 head_dim=64 -t sm_90a --templates "$@"; }
expect 0 "^$variant	B2-H2-K64-V64-vk	[0-9.]*	[0-9.]*	[01]\.[0-9]*	" env GEN_LIBCUDA="$sim" "$attngen" try $variant \
    batch=2 num_qk_heads=2 head_dim=64 -t sm_90a --templates "$scratch/y/templates"
grep -q "checks of 1 variants .*: 0 failed" "$scratch/log" || { echo "FAILED: not verified"; failed=1; }
expect 0 "^$variant	B2-H2-K64-V64-vk	-	[0-9.]*	-	" env GEN_LIBCUDA="$sim" "$attngen" try $variant \
    batch=2 num_qk_heads=2 head_dim=64 -t sm_90a --templates "$scratch/y/templates" --against none
expect 0 "no GPU, so nothing is run" run "$scratch/y/templates"
command -v "${CXX:-c++}" >/dev/null &&
    expect 0 "^# 1 checks of 1 variants over 1 cases: 0 failed" run "$source/templates" --against none
[ $failed = 0 ] && echo "try says what changed, and runs it"
exit $failed
