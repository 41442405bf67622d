#!/bin/sh
# Runs decode.py where the package attngen is installed: decode_py.sh PYTHON PRODUCT
set -eu
"$1" -c 'import attngen, numpy' 2>/dev/null || { echo "skipped: $1 has no package attngen with NumPy"; exit 77; }
exec "$1" "$(dirname "$0")/decode.py" "$2"
