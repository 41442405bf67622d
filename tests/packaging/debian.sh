#!/bin/sh
# Makes the Debian packages around a small product, lets lintian look at them, unpacks them into a
# folder as dpkg does and uses what is there: the program, the manual page, a C program.
#
#     debian.sh SOURCE_FOLDER CONSUMER_FOLDER ATTNGEN TOOLKIT [CMake argument...]
set -eu
source=$1
consumer=$2
attngen=$3
toolkit=$4
shift 4
for program in cpack dpkg-deb dpkg-shlibdeps lintian; do
    command -v $program >/dev/null || { echo "skipped: there is no $program"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "FAILED: $*" >&2
    exit 1
}
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log"; fail "$*"; }; }

quietly "$attngen" build --templates "$source/templates" --families la_decode --targets sm_90a \
    --only 'la_decode_bf16_d64_vk__*_one' --output "$work/product"
quietly cmake -S "$source" -B "$work/build" -G Ninja -DCMAKE_INSTALL_PREFIX=/usr \
    -DATTNGEN_TESTS=OFF -DCPACK_PACKAGE_CONTACT="A Maintainer <maintainer@debian.org>" \
    -DATTNGEN_TARGETS=sm_90a -DATTNGEN_PREBUILT="$work/product" -DCUDAToolkit_ROOT="$toolkit" \
    -DCMAKE_INSTALL_LIBDIR="lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)" "$@"
quietly cmake --build "$work/build"
(cd "$work/build" && quietly cpack -G DEB)
debs=$(find "$work/build" -maxdepth 1 -name '*.deb' | sort)

echo "== packages"
names=$(for deb in $debs; do dpkg-deb -f "$deb" Package; done | LC_ALL=C sort | tr '\n' ' ')
[ "$names" = "attngen attngen-kernels-sm-90a libattngen-dev libattngen0 " ] || fail "the packages are $names"
depends() { dpkg-deb -f "$work/build/$1"_*.deb Depends; }
depends attngen | grep -q 'liblua5\.4-0' || fail "attngen depends on $(depends attngen)"
[ -z "$(depends attngen-kernels-sm-90a)" ] || fail "kernels depend on $(depends attngen-kernels-sm-90a)"
depends libattngen0 | grep -q '^libc6 ([^,]*)$' || fail "libattngen0 depends on $(depends libattngen0)"
depends libattngen-dev | grep -q 'libattngen0 (= ' || fail "libattngen-dev depends on $(depends libattngen-dev)"
dpkg-deb -I "$work/build"/libattngen0_*.deb shlibs | grep -q '^libattngen 0 libattngen0' || fail "libattngen0 has no shlibs"

echo "== lintian"
# shellcheck disable=SC2086
lintian --allow-root --fail-on error $debs || fail "lintian"

echo "== use"
for deb in $debs; do dpkg-deb -x "$deb" "$work/root"; done
lib=$work/root/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
export LD_LIBRARY_PATH="$lib:$toolkit/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
"$work/root/usr/bin/attngen" --version
[ -s "$work/root/usr/share/man/man1/attngen.1.gz" ] || fail "no manual page"
cc -std=c11 "$consumer/consumer.c" -I "$work/root/usr/include" -L "$lib" -lattngen -lm -o "$work/consumer"
"$work/consumer" "$lib/attngen/attngen-sm-90a.fatbin"

echo "== two packages of kernels"
# The second product is another file in the same folder, as another package would bring it.
quietly "$attngen" build --templates "$source/templates" --families la_decode --targets sm_80 \
    --only 'la_decode_bf16_d64_vk__*_one' --output "$lib/attngen/attngen-sm-80.fatbin"
"$work/consumer" | tee "$work/out"
grep -q '^h200: la_decode_bf16_d64_vk__sm90a_' "$work/out" || fail "gen_open(NULL) does not open the packages"
for gpu in h200 a100; do
    "$work/root/usr/bin/attngen" select --gpu $gpu la_decode batch=1 num_qk_heads=1 head_dim=64 dtype=bf16 layout=vk \
        >"$work/out" || fail "attngen select --gpu $gpu"
    grep -q "la_decode_bf16_d64_vk__sm$([ $gpu = h200 ] && echo 90a || echo 80)_" "$work/out" ||
        { cat "$work/out"; fail "attngen select does not open both packages"; }
done

echo "== the library without the tools"
dpkg-deb -x "$work/build"/libattngen0_*.deb "$work/less"
dpkg-deb -x "$work/build"/libattngen-dev_*.deb "$work/less"
quietly cmake -S "$consumer" -B "$work/consumer.build" -G Ninja -DCMAKE_PREFIX_PATH="$work/less/usr" -DCONSUMER_PRODUCT=OFF
quietly cmake --build "$work/consumer.build"
echo "== passed"
