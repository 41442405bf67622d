#!/bin/sh
# Which variants have other machine code than at a revision?
#
#     scripts/same_code.sh REVISION                            what the catalogs say, without compiling
#     scripts/same_code.sh REVISION [-t TARGETS] GLOB...       variants whose names match, compiled from
#                                                              both trees' templates (default: sm_90a)
#
# Prints them with both digests; the last line counts. Exit status 1 where one differs, or is in one tree
# alone. ATTNGEN names the generator: build/bin/attngen.
set -eu
cd "$(git rev-parse --show-toplevel)"
attngen=${ATTNGEN:-build/bin/attngen}
[ $# -ge 1 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
revision=$(git rev-parse --verify --quiet "$1^{commit}") || { echo "same_code.sh: no revision '$1'" >&2; exit 2; }
shift
targets=sm_90a
if [ "${1:-}" = -t ]; then
    targets=$2
    shift 2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ $# = 0 ]; then
    git show "$revision:generated/catalog.tsv" >"$work/old"
    cp generated/catalog.tsv "$work/new"
else
    mkdir "$work/tree"
    git archive "$revision" templates | tar -x -C "$work/tree"
    for glob; do
        shift
        set -- "$@" --only "$glob"
    done
    "$attngen" build --templates "$work/tree/templates" --targets "$targets" "$@" -q -o "$work/p" --catalog "$work/old"
    "$attngen" build --templates templates --targets "$targets" "$@" -q -o "$work/p" --catalog "$work/new"
fi
# Columns by name: a catalog of before had no codes.
awk -F'\t' '
    FNR == 1 { tree++; name = code = 0 }
    /^#/ || $0 == "" { next }
    !name {
        for (i = 1; i <= NF; i++) { if ($i == "name") name = i; if ($i == "code") code = i }
        if (!code) { print "same_code.sh: the catalog of the " (tree == 1 ? "revision" : "tree") " has no codes" > "/dev/stderr"; failed = 2; exit 2 }
        next
    }
    tree == 1 { old[$name] = $code; next }
    { count++; now[$name] = $code }
    !($name in old) { print $name ": only now"; other++; next }
    old[$name] == "-" || $code == "-" { unknown++; next }
    old[$name] != $code { print $name ": " old[$name] ", now " $code; other++ }
    END {
        if (failed) exit failed
        for (n in old) if (!(n in now)) { print n ": only at the revision"; other++ }
        printf "%d variants, %d of other code", count, other
        print unknown ? ", " unknown " of unknown code" : ""
        exit other > 0
    }' "$work/old" "$work/new"
