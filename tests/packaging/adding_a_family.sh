#!/bin/sh
# Does what docs/adding-a-family.md says, in a copy of the tree: writes the
# files it shows, builds, runs its program, and checks that nothing else was
# needed or changed.
#
#     adding_a_family.sh SOURCE_FOLDER [CMake argument...]
set -eu
source=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
build=$work/build

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

mkdir "$tree"
for part in CMakeLists.txt LICENSE cmake gen runtime templates generated bench docs; do
    [ ! -e "$source/$part" ] || cp -R "$source/$part" "$tree/$part"
done
written=$(python3 "$source/scripts/doc_blocks.py" "$source/docs/adding-a-family.md" "$tree")
echo "$written"
for file in $written; do
    [ ! -e "$source/$file" ] || fail "the document would change $file, which the tree has"
done

cmake -S "$tree" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DATTNGEN_WERROR=ON \
    -DATTNGEN_TESTS=OFF -DATTNGEN_BENCH=OFF -DATTNGEN_FAMILIES=scale -DATTNGEN_TARGETS=sm_90a "$@"
cmake --build "$build"
"$build/bin/attngen" list --templates "$tree/templates" --families scale --targets sm_90a

cc -std=c11 -Wall -Wextra -Werror "$tree/use_scale.c" -I "$build/include" "$build/lib/libattngen.a" \
    -lm -ldl -pthread -o "$work/use_scale"
"$work/use_scale" "$build/attngen.fatbin" | tee "$work/output"
grep -q '^an H200 would run scale_fp32__sm90a_' "$work/output" || fail "another variant was chosen"
grep -qx 'y = 0.5 1 1.5 2 2.5' "$work/output" || fail "the reference gave something else"
