#!/bin/sh
# Uses attngen from another project by each of CMake's ways: an installed tree (find_package), the
# sources (add_subdirectory, FetchContent), and the sources without the generator.
#
#     subproject.sh SOURCE_FOLDER CONSUMER_FOLDER LIBDIR TOOLKIT [CMake argument...]
set -eu
source=$1
consumer=$2
libdir=$3
toolkit=$4
shift 4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH="$toolkit/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

fail() {
    echo "FAILED: $*" >&2
    exit 1
}
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; fail "$*"; }; }

# use WAY [CMake argument...]: the consumer builds a product of its own and runs on it.
use() {
    way=$1
    shift
    echo "== $way"
    quietly cmake -S "$consumer" -B "$work/$way" -G Ninja -DCONSUMER_WAY="$way" -DATTNGEN_SOURCE="$source" \
        -DCUDAToolkit_ROOT="$toolkit" "$@"
    quietly timeout 300 cmake --build "$work/$way"
    (cd "$work/$way" && ctest --output-on-failure --no-tests=error)
    cmake --build "$work/$way" | grep -q 'no work to do' || fail "$way: a second build has work to do"
}

use add_subdirectory "$@"
use FetchContent "$@"
for way in add_subdirectory FetchContent; do
    [ ! -e "$work/$way/attngen.fatbin" ] || fail "$way: attngen's own product is built"
    cmake --install "$work/$way" --prefix "$work/$way.prefix" >/dev/null
    [ -z "$(find "$work/$way.prefix" -type f 2>/dev/null)" ] || fail "$way: attngen is installed with the consumer"
done

echo "== runtime alone"
quietly cmake -S "$source" -B "$work/alone" -G Ninja -DATTNGEN_GENERATOR=OFF -DATTNGEN_BENCH=OFF -DATTNGEN_TESTS=OFF "$@"
quietly cmake --build "$work/alone"
quietly cmake --install "$work/alone" --prefix "$work/prefix"
found=$(cd "$work/prefix" && find . -type f ! -path './include/*' ! -path "./$libdir/libattngen*" \
    ! -path "./$libdir/cmake/*" ! -path "./$libdir/pkgconfig/*")
[ -z "$found" ] || fail "a runtime alone installs $found"
[ -e "$work/prefix/$libdir/libattngen.so" ] || fail "a runtime alone installs no libattngen.so"
! readelf -d "$work/prefix/$libdir/libattngen.so" | grep NEEDED | grep -e lua -e nvrtc || fail "libattngen needs the generator's libraries"
use find_package -DCMAKE_PREFIX_PATH="$work/prefix" -DCONSUMER_PRODUCT=OFF

echo "== what cannot be"
! cmake -S "$consumer" -B "$work/none" -DCONSUMER_WAY=find_package -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/log" 2>&1 ||
    fail "attngen_add_fatbin() works without a generator"
tr '\n' ' ' <"$work/log" | tr -s ' ' | grep -q 'built without its generator (ATTNGEN_GENERATOR=OFF)' || { cat "$work/log"; fail "another message"; }
! cmake -S "$consumer" -B "$work/lost" -DCONSUMER_WAY=add_subdirectory -DATTNGEN_SOURCE="$source" \
    -DCUDAToolkit_ROOT="$toolkit" -DCONSUMER_TEMPLATES= "$@" >"$work/log" 2>&1 || fail "an empty templates folder is accepted"
grep -q "attngen_TEMPLATES_DIR is ''" "$work/log" || { cat "$work/log"; fail "another message"; }
echo "== passed"
