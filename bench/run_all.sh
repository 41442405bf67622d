#!/bin/sh
# Everything that is measured on a GPU, by one call, on a machine that may have nothing but the built programs:
#
#   bench/run_all.sh [STEP...]
#
# Steps, in this order (default: all): verify sanitize tune tune-80 peers train bench bench-80 columns numerics host regret python ncu report
#
# PRODUCT   the product (default: attngen.fatbin in the build folder)
# BIN       the programs attngen-* (default: libexec/attngen in the build folder)
# OUT       results and tables go here (default: the source tree)
# COMMIT    of the source, for the headers; DEVICE: CUDA device (default: the first); SECONDS_TUNE: per table (default 240)
# FAMILIES  that verify, tune, bench, numerics and regret run (default: all); the others' results stay
# FA3_LIBRARY  a library with FlashAttention-3's kernels for peers/fa3_*.py (default: none, and no such peers)
# FLASHMLA_LIBRARY  a library with FlashMLA's dense decode kernels for peers/flashmla_mla_decode.py (default: none, and no such peer)
#
# A step that fails is reported at the end and does not stop the others. Exit status 1 if one failed.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=${BUILD:-$here/../build}
BIN=${BIN:-$build/libexec/attngen}
PRODUCT=${PRODUCT:-$build/attngen.fatbin}
OUT=${OUT:-$here/..}
COMMIT=${COMMIT:-$(git -C "$here" rev-parse --short HEAD 2>/dev/null || echo -)}
device=${DEVICE:+--device $DEVICE}
families=
for family in ${FAMILIES-}; do families="$families --families $family"; done
seconds=${SECONDS_TUNE:-240}
BIN=$(cd "$BIN" && pwd)
case $PRODUCT in /*) ;; *) PRODUCT=$PWD/$PRODUCT ;; esac
export ATTNGEN_PRODUCT="$PRODUCT"
mkdir -p "$OUT" && cd "$OUT" || exit 1
# Paths are relative from here on, because the files' headers hold the commands.
results=bench/results
tuning=generated/tuning
mkdir -p "$results" "$tuning" bench/peers
# Figures of peers that are not measured in this run.
for file in "$here"/peers/*_recorded.tsv; do
    to=bench/peers/$(basename "$file")
    [ "$to" -ef "$file" ] || cp "$file" "$to"
done

all="verify sanitize tune tune-80 peers train bench bench-80 columns numerics host regret python ncu report"
steps=${*:-$all}
for step in $steps; do
    case $step in
    verify | sanitize | tune | tune-80 | peers | train | bench | bench-80 | columns | numerics | host | regret | python | ncu | report) ;;
    *)
        echo "run_all.sh: unknown step '$step'; allowed: $all" >&2
        exit 1
        ;;
    esac
done
for program in verify tune bench; do
    [ -x "$BIN/attngen-$program" ] || { echo "run_all.sh: no $BIN/attngen-$program; set BIN or BUILD" >&2; exit 1; }
done
[ -r "$PRODUCT" ] || { echo "run_all.sh: no product $PRODUCT; set PRODUCT" >&2; exit 1; }

# Tables of this run come before those in the product.
tables() {
    for file in "$tuning"/*.tsv; do
        [ -r "$file" ] && printf -- '--table %s ' "$file"
    done
}

# Every path of the code once: one type and width of each family.
sanitize() (
    set -f # the keys are globs
    bad=0
    for tool in memcheck racecheck synccheck; do
        more= # the default number of barriers overflows
        [ "$tool" = synccheck ] && more="--num-cuda-barriers 65536"
        for key in ${SANITIZE_KEYS:-la_decode_bf16_d128_* mla_decode_bf16_*_r64 mla_merge_bf16 mla_sparse_bf16_* kda_decode_* kda_step_* gdn_step_* kda_intra_bf16_* kda_inter_bf16_* kda_scan_bf16_* kda_prefill_bf16_* kda_gate_bf16_* kda_chunk_intra_bf16_* kda_recompute_wu_bf16_* kda_chunk_h_bf16_* kda_chunk_o_bf16_* kda_bwd_*bf16_* kda_gate_bwd_bf16_* kda_qk_bwd_bf16_* gdn_decode_* gdn_intra_bf16_* gdn_prefill_bf16_* index32_* attn_fwd_bf16_* attn_fwd_e4m3_*}; do
            compute-sanitizer --tool "$tool" $more --error-exitcode 9 "$BIN/attngen-verify" --sanitizer --keys "$key" $device || bad=1
        done
    done
    exit $bad
)

# What runs on this machine beside ours: a file of figures for each program in peers/.
peers() (
    bad=0
    for program in "$here"/peers/*.py; do
        [ "$(basename "$program")" != fla_kda_bwd.py ] || continue # the step train
        file=$(basename "$program" .py)_peers.tsv
        rm -f "$file"
        if python3 "$program" $device >"$file.tmp"; then mv "$file.tmp" "$file"; else bad=1; fi
    done
    exit $bad
)

run() {
    case $1 in
    verify) "$BIN/attngen-verify" $families $device ;;
    sanitize) sanitize ;;
    tune) "$BIN/attngen-tune" $families --rest 20 --seconds "$seconds" --commit "$COMMIT" $device ;;
    tune-80) "$BIN/attngen-tune" --sms 80 $families --rest 20 --seconds "$seconds" --commit "$COMMIT" $device ;;
    peers) peers ;;
    train)
        # FLA's backward pass of KDA, which is a peer, and both passes beside it: kda_train.csv.
        python3 -c 'import attngen, fla, torch' || { echo "run_all.sh: no Python with attngen, fla, torch" >&2; return 1; }
        rm -f fla_kda_bwd_peers.tsv
        ATTNGEN_PRODUCT_PATH=$PRODUCT python3 "$here/peers/fla_kda_bwd.py" $device --train "$results" --commit "$COMMIT" \
            >fla_kda_bwd_peers.tsv.tmp && mv fla_kda_bwd_peers.tsv.tmp fla_kda_bwd_peers.tsv
        ;;
    bench)
        from=
        for file in bench/peers/*_recorded.tsv *_peers.tsv; do
            [ -r "$file" ] && from="$from --peer-file $file"
        done
        "$BIN/attngen-bench" cases $families --rest 20 --results "$results" --commit "$COMMIT" $device $(tables) $from
        ;;
    bench-80) "$BIN/attngen-bench" cases --sms 80 $families --results "$results" --commit "$COMMIT" $device $(tables) ;;
    columns)
        # QK_SHARD true and false as portable variants, and what 99 KiB of shared memory leave, built for sm_90 and as PTX;
        # all rows after cool-downs, as the file's head says, because with 64 heads they reach the board's power limit.
        "$BIN/attngen-bench" columns --families mla_decode --rest 20 --cases 'B768-*-P1-*' --column 'shard=*_sm90a_mma_*_shard_*' \
            --column 'dup=*_sm90a_mma_*_dup_*' --column 'sm_89 shape=*_sm90a_mma_q64_kv16_st1_*' \
            --column 'the same as PTX=*__ptx80_mma_q64_kv16_st1_*' --results "$results" --commit "$COMMIT" $device || return 1
        # Attention: a tile a block, static shares, a dynamic queue, CTA pairs; the latter two under a symbol that ptxas treats
        # by other rules; and what selection picks.
        "$BIN/attngen-bench" columns --families attn_fwd --rest 20 --cases 'Z4-H32-D*' --picked $(tables) \
            --column 'one=*_wgmma_*_one' --column 'pers=*_pers' --column 'dyn=*_dyn' --column 'twin=*_twin' \
            --column 'dyn cutlass=*_dyn_cutlass' --column 'twin cutlass=*_twin_cutlass' --results "$results" --commit "$COMMIT" $device
        ;;
    numerics)
        from=
        for file in *_numerics_peers.tsv; do
            [ -r "$file" ] && from="$from --peer-file $file"
        done
        "$BIN/attngen-bench" numerics $families --results "$results" --commit "$COMMIT" $device $(tables) $from
        ;;
    host) "$BIN/attngen-bench" host --results "$results" --commit "$COMMIT" $device $(tables) ;;
    regret) "$BIN/attngen-bench" regret $families --rest 20 --results "$results" --commit "$COMMIT" $device $(tables) ;;
    python)
        python3 -c 'import attngen, fla, torch' || { echo "run_all.sh: no Python with attngen, fla, torch" >&2; return 1; }
        python3 "$here/python/python_calls.py" --results "$results" --commit "$COMMIT"
        ;;
    ncu)
        class=$("$BIN/attngen-bench" header $device | sed -n 's/^# gpu: .*(\(sm[0-9]*_[0-9]*sm\))$/\1/p')
        [ -n "$class" ] || return 1
        mkdir -p "$results/$class"
        BENCH=$BIN/attngen-bench TABLE=$(ls "$tuning/$class.tsv" 2>/dev/null) DEVICE=${DEVICE-} COMMIT=$COMMIT \
            "$here/profile.sh" "$results/$class/la_decode_ncu.csv"
        ;;
    report) python3 "$here/report.py" --results "$results" --output bench/BENCHMARK_H200.md ;;
    esac
}

summary=
failed=0
for step in $steps; do
    echo "== $step"
    start=$(date +%s)
    if run "$step"; then verdict=ok; else verdict=FAILED failed=1; fi
    summary="$summary$(printf '%-10s %-7s %5d s' "$step" "$verdict" $(($(date +%s) - start)))
"
done
echo "== summary"
printf '%s' "$summary"
exit $failed
