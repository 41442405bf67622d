#!/bin/sh
# Compiles the C example of README.md as it stands there and runs it on the CPU.
#
#     readme_example.sh SOURCE_FOLDER BUILD_FOLDER
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 "$1/scripts/doc_blocks.py" "$1/README.md" "$work"
lines=$(wc -l <"$work/example.c")
[ "$lines" -le 20 ] || { echo "FAILED: the example has $lines lines, not 20" >&2; exit 1; }
for library in -lattngen -l:libattngen.a; do
    cc -std=c11 -Wall -Wextra -Werror "$work/example.c" -I "$2/include" -L "$2/lib" $library -lm -ldl -pthread \
        -o "$work/example"
    LD_LIBRARY_PATH="$2/lib" "$work/example" "$2/attngen.fatbin" | tee "$work/output"
    grep -q 'la_decode_bf16_d128_vk__sm90a_' "$work/output"
done
