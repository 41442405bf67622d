#!/bin/sh
# How the built and the installed files are linked: nothing is loaded from the
# current directory, and what the compiler and the linker offer against
# overwritten memory is on.
#
#     hardening.sh BUILD_FOLDER LIBDIR FAKE_GPUS OPTIMIZED
# FAKE_GPUS is a driver library of the tests; OPTIMIZED is 1 or 0.
set -eu
build=$1
libdir=$2
fake_gpus=$3
optimized=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# search_path FILE: every element of its RPATH and RUNPATH is a folder from the root or $ORIGIN's.
search_path() {
    path=$(readelf -dW "$1" 2>/dev/null | sed -n 's/.*(R\(UN\)\{0,1\}PATH).*\[\(.*\)\]/\2/p')
    [ -n "$path" ] || return 0
    case ":$path:" in
    *::*) fail "$1: its search path '$path' has an empty element: the current directory" ;;
    esac
    echo "$path" | tr : '\n' | grep -v -e '^/' -e '^\$ORIGIN' && fail "$1: its search path '$path' is relative"
    return 0
}

hardened() { # FILE
    search_path "$1"
    readelf -hW "$1" | grep -q 'Type: *DYN' || fail "$1 is not position-independent"
    readelf -lW "$1" | grep -q GNU_RELRO || fail "$1 has no RELRO"
    readelf -dW "$1" | grep -q -e BIND_NOW -e 'Flags:.* NOW' || fail "$1 is not bound when it is loaded"
    readelf -lW "$1" | grep -q 'GNU_STACK.*RWE' && fail "$1 has an executable stack"
    readelf -sW "$1" | grep -q __stack_chk_fail || fail "$1 has no stack protector"
    [ "$optimized" = 0 ] || readelf -sW "$1" | grep -q '_chk@' || fail "$1 calls none of libc's checked functions"
}

programs() { # PREFIX LIBDIR
    for file in "$1"/bin/attngen "$1"/libexec/attngen/* "$1/$2"/libattngen.so; do
        [ ! -e "$file" ] || echo "$file"
    done
}

echo "== build tree"
for file in $(programs "$build" lib); do hardened "$file"; done
for file in "$build"/tests/* "$build"/lib/*.so; do
    [ -d "$file" ] || search_path "$file"
done

echo "== install tree"
cmake --install "$build" --prefix "$work/prefix" >"$work/install.log" || { cat "$work/install.log"; fail "install"; }
for file in $(programs "$work/prefix" "$libdir"); do
    hardened "$file"
    [ -z "$path" ] || fail "$file carries the search path $path"
done

echo "== libraries of the current directory"
mkdir "$work/planted"
for library in $(readelf -dW "$build/bin/attngen" "$build/libexec/attngen/attngen-generator" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    echo planted >"$work/planted/$library"
done
(cd "$work/planted" && env -u LD_LIBRARY_PATH "$build/bin/attngen" --version) ||
    fail "attngen loads a library of the current directory"

echo "== a product of the current directory"
if [ -e "$work/prefix/libexec/attngen/attngen-select" ]; then
    # An installation without a product: nothing else may stand in for it.
    rm -f "$work/prefix/$libdir/attngen/attngen.fatbin"
    mkdir -p "$work/planted/build"
    echo planted >"$work/planted/attngen.fatbin"
    echo planted >"$work/planted/build/attngen.fatbin"
    if (cd "$work/planted" && env -u ATTNGEN_PRODUCT "$work/prefix/bin/attngen" select --gpu h200 la_decode) \
        >"$work/select" 2>&1; then
        fail "attngen select works without a product"
    fi
    grep -q 'there is no product' "$work/select" || { cat "$work/select"; fail "attngen select took a product of the current directory"; }
fi

echo "== printing to a full disk"
for program in "$build"/libexec/attngen/attngen-*; do
    [ -e "$program" ] || continue
    if "$program" --help >/dev/full 2>/dev/null; then fail "$program --help >/dev/full succeeds"; fi
done

echo "== GEN_LIBCUDA with more rights than the user's"
# Needs root, a folder that allows setuid programs, and the build's search path for NVRTC.
query() {
    GEN_LIBCUDA=$work/fake_gpus.so FAKE_CCS=80 \
        setpriv --reuid 65534 --regid 65534 --clear-groups "$work/prefix/bin/attngen" list keys -f la_decode 2>&1 >/dev/null |
        head -1
}
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null && [ -e "$fake_gpus" ]; then
    cp "$build/libexec/attngen/attngen-generator" "$work/prefix/libexec/attngen/"
    cp "$fake_gpus" "$work/fake_gpus.so"
    chmod -R a+rX "$work"
    query | grep -q "this machine's GPU, sm_80" || fail "without setuid: $(query)"
    chmod u+s "$work/prefix/bin/attngen"
    query | grep -q "this machine's GPU, sm_80" && fail "a setuid program opens GEN_LIBCUDA"
    query
else
    echo "not tested: this is not root"
fi
echo "== passed"
