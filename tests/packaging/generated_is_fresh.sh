#!/bin/sh
# Is the committed catalog what the templates make today: nothing stale,
# missing or left over? Do the tuning tables have the digests that it knows, and
# does the default space hold what they pick?
#
#     generated_is_fresh.sh ATTNGEN SOURCE_FOLDER BUILD_FOLDER
set -eu
cd "$2"
found=$("$1" check --templates templates --catalog generated/catalog.tsv 2>&1) && status=0 || status=$?
echo "$found" | head -n 20
[ "$(echo "$found" | wc -l)" -le 20 ] || echo "$found" | tail -n 1
scripts/default_space.py --check || status=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp generated/tuning/*.tsv "$work"
"$1" rekey --catalog generated/catalog.tsv --tables "$work" >"$work/rows"
for table in generated/tuning/*.tsv; do
    cmp "$table" "$work/${table##*/}" || { cat "$work/rows"; status=1; }
done
[ "$status" = 0 ] || echo "FAILED. To refresh it: cmake --build $3 -t regen" >&2
exit "$status"
