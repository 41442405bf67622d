#!/bin/sh
# Builds the wheel and names the oldest glibc that it runs on: manylinux_2_N.
#
#     python/wheel.sh [FOLDER]        default: dist
#
# ATTNGEN_WHEEL_TARGETS   targets of the product, comma-separated; default: all
# ATTNGEN_WHEEL_MAX_REGRET  how much slower than its row's a kept variant may be; default: 0.01
# ATTNGEN_WHEEL_PRODUCT   a product that was made before, to be taken as it is
# PYTHON                  default: python3. Needs pip and, beside what pip brings, the package wheel
set -eu
output=$(mkdir -p "${1:-dist}" && cd "${1:-dist}" && pwd)
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
limit=$((40 * 1024 * 1024))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m pip wheel . --no-deps --quiet --wheel-dir "$work/plain"
wheel=$(ls "$work"/plain/attngen-*.whl)
"$python" -m zipfile -e "$wheel" "$work/files"
# Symbols of glibc say from which version on they are there.
minor=$(find "$work/files" -type f \( -name '*.so' -o -path '*/bin/*' -o -path '*/libexec/*' \) -exec objdump -T {} + |
    grep -o 'GLIBC_2\.[0-9]*' | sort -u -t. -k2 -n | tail -n 1 | cut -d. -f2)
[ -n "$minor" ] || { echo "wheel.sh: no file of $wheel names a version of glibc" >&2; exit 1; }
[ "$minor" -ge 17 ] || minor=17
(cd "$work/plain" && "$python" -m wheel tags --remove --platform-tag "manylinux_2_${minor}_$(uname -m)" "$wheel" >/dev/null)
wheel=$(ls "$work"/plain/attngen-*.whl)
size=$(wc -c <"$wheel")
[ "$size" -le "$limit" ] || { echo "wheel.sh: $wheel has $size bytes; allowed are $limit" >&2; exit 1; }
product=$(wc -c <"$work/files/attngen/lib/attngen/attngen.fatbin")
echo "wheel.sh: $size bytes of $limit, the product $product" >&2
mv "$wheel" "$output"
echo "$output/$(basename "$wheel")"
