#!/bin/sh
# Compiles a sample of variants with the NVRTC of several CUDA toolkits, from
# PyPI's wheels, and compares what is refused with docs/toolkits.tsv.
#
#     scripts/toolkits.sh BUILD_FOLDER [--update | --add | --quick]
#
# BUILD_FOLDER holds a built generator, which is linked again with each NVRTC.
# The sample is a fallback for each family and target, and a wgmma kernel for
# each required key that has one; --quick takes a wgmma kernel a family, and of one
# family the fallbacks. --update writes the table anew; --add compiles what the
# table lacks alone, and leaves out what the catalog has no more. $ATTNGEN_TOOLKITS_DIR
# keeps the wheels and what was compiled; its default is build-toolkits. Exit
# status: 0 as the table says (or skipped, with a message, where PyPI does not
# give the wheels), 1 otherwise.
set -eu
cd "$(dirname "$0")/.."
say() { echo "toolkits.sh: $*" >&2; }
[ $# -gt 0 ] || { say "which build folder? usage: scripts/toolkits.sh BUILD_FOLDER [--update | --add | --quick]"; exit 1; }
build=$1
shift
table=docs/toolkits.tsv
mode=${1:-}
case $mode in
'' | --update | --add | --quick) ;;
*) say "unknown argument '$mode'; allowed are --update, --add, --quick"; exit 1 ;;
esac
set -- 12.8 12.9 13.0 13.5
objects="$build/gen/CMakeFiles/attngen_generator.dir/main.c.o $build/lib/libattngen_core.a $build/lib/libattngen_format.a"
for file in $objects; do
    [ -e "$file" ] || { say "$file is not there; build the target attngen first"; exit 1; }
done
mkdir -p "${ATTNGEN_TOOLKITS_DIR:=build-toolkits}"
work=$(cd "$ATTNGEN_TOOLKITS_DIR" && pwd)
export ATTNGEN_CACHE="$work/cache"
catalog=generated/catalog.tsv

# fetch VERSION: unpacks NVRTC's wheel of that toolkit into $work/VERSION.
fetch() {
    [ ! -e "$work/$1/done" ] || return 0
    case $1 in
    12.8) package=nvidia-cuda-nvrtc-cu12==12.8.93 ;;
    12.9) package=nvidia-cuda-nvrtc-cu12==12.9.86 ;;
    13.0) package=nvidia-cuda-nvrtc==13.0.88 ;;
    13.5) package=nvidia-cuda-nvrtc==13.5.37 ;;
    esac
    rm -rf "$work/$1" "$work/$1.wheel"
    python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$work/$1.wheel" "$package" >&2 || return 1
    python3 -m zipfile -e "$work/$1.wheel"/*.whl "$work/$1"
    rm -rf "$work/$1.wheel"
    touch "$work/$1/done"
}

# link VERSION: the generator with that NVRTC, as $work/VERSION/attngen.
link() {
    nvrtc=$(find "$work/$1" -name 'libnvrtc.so.1[0-9]')
    lua=$(pkg-config --libs lua5.4)
    # shellcheck disable=SC2086
    ${CC:-cc} -o "$work/$1/attngen" $objects "$nvrtc" $lua -lm -ldl -pthread \
        "-Wl,--disable-new-dtags,-rpath,$(dirname "$nvrtc")"
}

# FAMILY TARGET NAME..., a line a family and target.
sample() {
    awk -F '\t' -v quick="$mode" '
        /^#/ || $1 == "name" { next }
        { key = $2 "\t" $4 }
        first == "" { first = $2 }
        quick == "--quick" && $2 != first && $5 !~ /wgmma/ { next }
        !(key in seen) { seen[key] = 1; order[++n] = key }
        $11 == 1 && !(key in fallback) { fallback[key] = $1 }
        $5 ~ /wgmma/ && !((group = (quick == "--quick" ? $2 : $3) SUBSEP $4) in tried) { tried[group] = 1; more[key] = more[key] " " $1 }
        END { for (i = 1; i <= n; i++) print order[i] "\t" fallback[order[i]] more[order[i]] }' "$catalog" | sort
}

# lacking VERSION: with --add, the lines of sample but for the variants that the table has for this toolkit.
lacking() {
    [ "$mode" = --add ] || { cat; return; }
    awk -F '\t' -v version="$1" -v table="$table" '
        FILENAME == table { if ($1 == version) said[$4] = 1; next }
        { names = ""; n = split($3, name, " ")
          for (i = 1; i <= n; i++) if (!(name[i] in said)) names = names (names ? " " : "") name[i]
          if (names) print $1 "\t" $2 "\t" names }' "$table" -
}

# verdicts VERSION: a row a variant.
verdicts() {
    version=$1 log=$work/$1/log
    sample | lacking "$version" | while IFS='	' read -r family target names; do
        set --
        for name in $names; do set -- "$@" --only "$name"; done
        "$work/$version/attngen" build --templates templates --families "$family" --targets "$target" "$@" \
            --allow-lost --output "$work/$version/product" >"$log" 2>&1 </dev/null || true
        for name in $names; do
            why=$(grep -m 1 -F -e "refused: $name: " -e "$name was refused: " "$log" | sed 's/.*refused: //; s/^[a-z][a-z0-9_]*: //' || true)
            [ -n "$why" ] || grep -q ' variants, [0-9]* bytes' "$log" || why=$(tail -n 1 "$log")
            printf '%s\t%s\t%s\t%s\t%s\n' "$version" "$family" "$target" "$name" "${why:-compiles}"
        done
    done
}

: >"$work/found.tsv"
for version; do
    if ! fetch "$version"; then
        say "skipped: PyPI does not give NVRTC $version"
        exit 0
    fi
    link "$version"
done
for version; do
    verdicts "$version" >"$work/$version/found.tsv" &
done
wait
for version; do
    cat "$work/$version/found.tsv" >>"$work/found.tsv"
    awk -F '\t' -v v="$version" '$1 == v { n++; ok += $5 == "compiles" } END { printf "CUDA %s: %d of %d variants compile\n", v, ok, n }' "$work/found.tsv"
done

if [ "$mode" = --update ] || [ "$mode" = --add ]; then
    had=/dev/null
    [ "$mode" = --update ] || had=$table
    {
        echo "# What the NVRTC of each CUDA toolkit does with a sample of variants. Made by scripts/toolkits.sh --update."
        printf 'toolkit\tfamily\ttarget\tvariant\tverdict\n'
        sample | awk -F '\t' -v versions="$*" '
            FILENAME != "-" { if ($1 != "toolkit" && !/^#/) row[$1, $4] = $0; next }
            { sampled[++n] = $3 }
            END { v = split(versions, version, " ")
                  for (i = 1; i <= v; i++) for (j = 1; j <= n; j++) {
                      names = split(sampled[j], name, " ")
                      for (k = 1; k <= names; k++) print row[version[i], name[k]] } }' "$had" "$work/found.tsv" -
    } >"$work/table.tsv"
    mv "$work/table.tsv" "$table"
    exit 0
fi
awk -F '\t' -v table="$table" '
    FILENAME == table { said[$1, $4] = $5; next }
    !(($1, $4) in said) { print "CUDA " $1 ", " $4 ": not in " table "; scripts/toolkits.sh BUILD_FOLDER --update adds it"; bad = 1; next }
    said[$1, $4] != $5 { print "CUDA " $1 ", " $4 ": " $5 "; " table " says: " said[$1, $4]; bad = 1 }
    END { exit bad }' "$table" "$work/found.tsv" || { say "FAILED"; exit 1; }
