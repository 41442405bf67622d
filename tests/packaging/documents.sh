#!/bin/sh
# Do the documents keep scripts/check_documents.py's promises, and does it find each fault?
#
#     documents.sh SOURCE_FOLDER
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1/scripts/check_documents.py" "$1"
mkdir "$work/bench" "$work/examples"
cp "$1"/*.md "$1/LICENSE" "$work"
cp -R "$1/docs" "$work/docs"
cp "$1"/examples/*.md "$work/examples"
cp -R "$1"/bench/*.md "$1/bench/plots" "$work/bench"
"$1/scripts/check_documents.py" "$work"

# expect PATTERN: the copy has one fault, which is named.
expect() {
    ! "$1/scripts/check_documents.py" "$work" >"$work/log" 2>&1 && [ "$(grep -c . "$work/log")" = 1 ] && grep -q "$2" "$work/log" || {
        echo "FAILED: expected '$2'" >&2
        cat "$work/log" >&2
        exit 1
    }
}
cp "$work/README.md" "$work/kept"
seq 151 | sed 's/.*/line/' >"$work/README.md"
expect "$1" '^README.md has 151 lines; allowed are 150$'
mv "$work/kept" "$work/README.md"
printf '%0121d\n' 0 >"$work/docs/perf/wide.md"
expect "$1" '^docs/perf/wide.md:1 has 121 columns; allowed are 120$'
echo '[a log](../log/none.md)' >"$work/docs/perf/wide.md"
expect "$1" '^docs/perf/wide.md:1 links to ../log/none.md, which does not exist$'
printf '# One heading\n[here](#one-heading) [there](#another)\n' >"$work/docs/perf/wide.md"
expect "$1" '^docs/perf/wide.md:2 links to #another, which has no such heading$'
rm "$work/docs/perf/wide.md"
touch "$work/docs/log/yesterday.md"
expect "$1" "^docs/log/yesterday.md: a log's name is DATE-WHAT.md$"
rm "$work/docs/log/yesterday.md"
touch "$work/docs/log/2026-01-01-nothing.md"
expect "$1" '^docs/log/2026-01-01-nothing.md: no page of docs/perf links to it$'
echo "passed"
