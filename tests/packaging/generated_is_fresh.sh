#!/bin/sh
# Is the committed catalog what the templates make today: nothing stale,
# missing or left over?
#
#     generated_is_fresh.sh ATTNGEN SOURCE_FOLDER BUILD_FOLDER
set -eu
cd "$2"
"$1" check --templates templates --catalog generated/catalog.tsv || {
    echo "FAILED. To refresh it: cmake --build $3 -t regen" >&2
    exit 1
}
