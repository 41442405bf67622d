#!/bin/sh
# Installs the build, uses it from a project outside the tree through CMake and
# pkg-config, moves the installed tree and does it again.
#
#     packaging.sh SOURCE_FOLDER BUILD_FOLDER CONSUMER_FOLDER LIBDIR TOOLKIT_LIBRARIES
set -eu
source=$1
build=$2
consumer=$3
libdir=$4
# What is installed carries no search path, so a toolkit that the loader does not
# know must be named, as its user would.
export LD_LIBRARY_PATH="$5${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}
empty() { # TEXT WHAT
    [ -z "$1" ] || fail "$2: $1"
}

# use_cmake PREFIX FOLDER: builds and runs the consumer.
use_cmake() {
    cp -R "$consumer" "$2"
    cmake -S "$2" -B "$2/build" -G Ninja -DCMAKE_PREFIX_PATH="$1" -DCMAKE_BUILD_TYPE=Release >"$2.log" 2>&1 &&
        cmake --build "$2/build" >>"$2.log" 2>&1 || { cat "$2.log"; fail "the consumer does not build"; }
    (cd "$2/build" && ctest --output-on-failure --no-tests=error)
    # Nothing has changed, so nothing may run.
    cmake --build "$2/build" | grep -q 'no work to do' || fail "attngen_add_fatbin() is never up to date"
}

# use_pkg_config PREFIX FATBIN OUTPUT
use_pkg_config() {
    export PKG_CONFIG_PATH="$1/$libdir/pkgconfig"
    unset PKG_CONFIG_LIBDIR PKG_CONFIG_SYSROOT_DIR 2>/dev/null || true
    [ "$(realpath "$(pkg-config --variable=fatbin attngen)")" = "$(realpath "$1/$libdir/attngen/attngen.fatbin")" ] ||
        fail "pkg-config's fatbin is $(pkg-config --variable=fatbin attngen)"
    # shellcheck disable=SC2046
    cc -std=c11 -Wall -Werror "$consumer/consumer.c" $(pkg-config --cflags --libs attngen) -lm -o "$3.shared"
    # shellcheck disable=SC2046
    cc -std=c11 -Wall -Werror "$consumer/consumer.c" $(pkg-config --cflags attngen) \
        "$1/$libdir/libattngen.a" $(pkg-config --libs-only-l --libs-only-other --static attngen | sed 's/-lattngen//') -o "$3.static"
    LD_LIBRARY_PATH="$1/$libdir:$LD_LIBRARY_PATH" "$3.shared" "$2"
    LD_LIBRARY_PATH="$1/$libdir:$LD_LIBRARY_PATH" "$3.shared" # gen_open(NULL): beside the library
    "$3.static" "$2"
    ldd "$3.static" | grep -q libattngen && fail "the static build needs libattngen.so"
    return 0
}

echo "== install"
prefix=$work/here
cmake --install "$build" --prefix "$prefix" >"$work/install.log" || { cat "$work/install.log"; fail "install"; }
DESTDIR=$work/dest cmake --install "$build" --prefix /opt/attngen >/dev/null
[ "$(cd "$prefix" && find . | sort)" = "$(cd "$work/dest/opt/attngen" && find . | sort)" ] ||
    fail "DESTDIR changes what is installed"
[ "$(ls "$work/dest")" = opt ] || fail "files are installed outside of the prefix"

echo "== what is exported"
so=$prefix/$libdir/libattngen.so
"$source/tests/runtime/exports.sh" nm "$so" "$prefix/include/attngen/gen.h"
nm -D "$so" | grep -q 'gen_open@@' || fail "gen_open carries no version"
static=$(nm -g --defined-only "$prefix/$libdir/libattngen.a" | awk 'NF == 3 { print $3 }' | grep -v '^gen_' || true)
empty "$static" "libattngen.a defines"
for file in "$prefix"/bin/* "$prefix"/libexec/attngen/* "$so"; do
    [ -e "$file" ] || continue
    readelf -d "$file" | grep -E 'RPATH|RUNPATH' && fail "$file carries a search path"
    grep -qaF "$source" "$file" && fail "$file names the source folder"
done

echo "== CMake consumer"
use_cmake "$prefix" "$work/first"

echo "== moved tree"
mkdir "$work/else where"
mv "$prefix" "$work/else where/there"
prefix="$work/else where/there"
use_cmake "$prefix" "$work/second"
cmp "$work/first/build/kernels.fatbin" "$work/second/build/kernels.fatbin" ||
    fail "the same generator in another place makes other bytes"
ln -s "$prefix" "$work/there" # pkg-config's output cannot carry blanks
use_pkg_config "$work/there" "$work/second/build/kernels.fatbin" "$work/with_pc"
use_pkg_config "$work/there" "$work/there/$libdir/attngen/attngen.fatbin" "$work/with_pc"

echo "== programs of the moved tree"
[ "$(ls "$build/libexec/attngen" 2>/dev/null)" = "$(ls "$prefix/libexec/attngen" 2>/dev/null)" ] ||
    fail "the sub-programs that were built are not those installed"
for program in "$prefix"/libexec/attngen/*; do
    [ -e "$program" ] || continue # ATTNGEN_BENCH=OFF
    name=$(basename "$program" | sed 's/^attngen-//')
    [ "$name" != generator ] || continue
    "$prefix/bin/attngen" "$name" --help >/dev/null || fail "attngen $name --help"
done
"$prefix/bin/attngen" --version
"$prefix/bin/attngen" list >/dev/null
man=$prefix/share/man/man1/attngen.1
[ -s "$man" ] || fail "no man page"
for program in "$prefix"/libexec/attngen/*; do
    [ -e "$program" ] || continue
    name=$(basename "$program" | sed 's/^attngen-//')
    [ "$name" != generator ] || continue
    grep -q "^\.\(It\|B\|Nm\|TP\|SS\).*\b$name\b" "$man" || fail "the man page does not name $name"
done
echo "== passed"
