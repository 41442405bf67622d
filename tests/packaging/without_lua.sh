#!/bin/sh
# Selecting, tuning, verifying and measuring where neither Lua nor NVRTC is installed: a loader that finds a broken
# liblua and libnvrtc runs all programs but the generator. Then the same of an installation without a generator.
#
#     without_lua.sh BUILD_FOLDER
set -eu
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

needed() { readelf -dW "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; }

echo "== what is linked"
lua=$(needed "$build/libexec/attngen/attngen-generator" | grep -c -e '^liblua' || true)
for program in "$build/bin/attngen" "$build"/libexec/attngen/attngen-*; do
    [ "$(basename "$program")" != attngen-generator ] || continue
    others=$(needed "$program" | grep -v -e '^libc\.' -e '^libm\.' -e '^libpthread\.' -e '^libdl\.' -e '^ld-linux' \
        -e '^lib[a-z]*san\.' -e '^libgcc_s\.' || true)
    [ -z "$others" ] || fail "$program needs $others"
done

# The build's search path for NVRTC is not the installation's.
cmake --install "$build" --prefix "$work/prefix" --component tools >"$work/log" 2>&1 || { cat "$work/log"; fail "install"; }
mkdir "$work/broken"
for library in $(needed "$work/prefix/libexec/attngen/attngen-generator" | grep -e '^liblua' -e '^libnvrtc'); do
    : >"$work/broken/$library"
done
broken() { LD_LIBRARY_PATH="$work/broken" "$@" >"$work/log" 2>&1; }

try_programs() {
    for name in select tune verify bench versus; do
        [ -x "$work/prefix/libexec/attngen/attngen-$name" ] || fail "no attngen-$name is installed"
        broken "$work/prefix/bin/attngen" "$name" --help || { cat "$work/log"; fail "attngen $name --help"; }
        grep -q "^attngen $name" "$work/log" || { cat "$work/log"; fail "attngen $name --help says something else"; }
    done
    [ -e "$build/attngen.fatbin" ] || return 0
    for family in la_decode attn_fwd mla_decode kda_decode; do # a product may have some of them
        if broken "$work/prefix/bin/attngen" select --product "$build/attngen.fatbin" --gpu h200 --brief "$family"; then break; fi
    done
    grep -q '^chosen' "$work/log" || { cat "$work/log"; fail "attngen select chooses nothing"; }
}

echo "== without the libraries"
if broken "$work/prefix/bin/attngen" list targets; then fail "the generator runs without NVRTC: this test tests nothing"; fi
grep -q -e libnvrtc -e liblua "$work/log" || { cat "$work/log"; fail "the loader names no library"; }
[ "$lua" = 0 ] || echo "the generator needs liblua, its programs do not"
try_programs

echo "== without the generator"
rm "$work/prefix/libexec/attngen/attngen-generator"
if broken "$work/prefix/bin/attngen" list targets; then fail "attngen list works without a generator"; fi
grep -q 'this installation has no generator' "$work/log" || { cat "$work/log"; fail "another message"; }
try_programs
echo "== passed"
