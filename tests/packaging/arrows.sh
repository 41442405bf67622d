#!/bin/sh
# Who includes whom is as docs/design.md says; and the check finds what it should
# in a copy of the tree.
#
#     arrows.sh SOURCE_FOLDER PYTHON
set -eu
source=$1
python=$2
"$python" "$source/scripts/arrows.py" "$source"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# planted FILE INCLUDE MESSAGE: a line is added to a fresh copy of the tree.
planted() {
    rm -rf "$work/tree"
    mkdir "$work/tree"
    for part in gen runtime templates tests; do
        cp -R "$source/$part" "$work/tree/$part"
    done
    echo "#include \"$2\"" >>"$work/tree/$1"
    if found=$("$python" "$source/scripts/arrows.py" "$work/tree"); then
        echo "FAILED: $1 may include $2" >&2
        exit 1
    fi
    echo "$found" | grep -qF "$3" || { echo "FAILED: $1 includes $2, and the check says: $found" >&2; exit 1; }
}
planted runtime/core/text.c ../gen.h '"../gen.h" climbs'
planted runtime/product/pack.h select/select.h 'may not include runtime/select/select.h'
planted runtime/core/text.c spec/model.h '"spec/model.h" is no file of'
planted gen/util/file.c core/text.h 'may not include runtime/core/text.h'
planted runtime/families/la_decode/family.c families/attn_fwd/attn_fwd.h 'may not include runtime/families/attn_fwd/attn_fwd.h'
planted tests/emul/launch.c gen.h '"gen.h" is no file of'
planted gen/util/arena.h spec/model.h 'circle: '
