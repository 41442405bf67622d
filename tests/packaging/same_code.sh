#!/bin/sh
# scripts/same_code.sh on a small repository: equal code, other code, a variant of one tree alone.
#
#     same_code.sh ATTNGEN SOURCE_FOLDER
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
export ATTNGEN="$1" ATTNGEN_CACHE="$work/cache" GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
git() { command git -c user.name=test -c user.email=test@example.org -c init.defaultBranch=main "$@"; }

# check STATUS PIECE ARGUMENT...: the exit status and a piece of what the script prints.
check() {
    wanted=$1 piece=$2
    shift 2
    text=$("$work/repository/scripts/same_code.sh" "$@" 2>&1) && status=0 || status=$?
    if [ "$status" != "$wanted" ] || ! echo "$text" | grep -q "$piece"; then
        echo "FAILED: same_code.sh $*: status $status, expected $wanted and '$piece':"
        echo "$text"
        failed=1
    fi
}

mkdir -p "$work/repository/scripts" "$work/repository/generated"
cp "$2/scripts/same_code.sh" "$work/repository/scripts"
cp -r "$2/tests/gen/fixtures" "$work/repository/templates"
cd "$work/repository"
git init -q
catalog() {
    "$ATTNGEN" build --templates templates -t sm_90a --only '*fp32*w4_plain' -q -o "$work/p" --catalog generated/catalog.tsv
}
catalog
git add .
git commit -q -m first
check 2 "no revision 'nowhere'" nowhere
check 0 "4 variants, 0 of other code" HEAD
sed -i 's/scaled(x, /scaled(\/* why *\/ x, /; s/long long first/long long begin/; s/first + /begin + /' templates/tiny/tiny.cu.in
check 0 "4 variants, 0 of other code" HEAD '*fp32*w4_plain'
sed -i 's/begin + \${WIDTH} > p.count/begin + ${WIDTH} >= p.count/' templates/tiny/tiny.cu.in
check 1 "^tiny_fp32__sm90a_v8_w4_plain: [0-9a-f]*, now [0-9a-f]*$" HEAD '*fp32*w4_plain'
check 1 "4 variants, 4 of other code" HEAD -t sm_80 '*fp32*w4_plain'
check 0 "4 variants, 0 of other code" HEAD
catalog
check 1 "4 variants, 4 of other code" HEAD
grep -v _v8_ generated/catalog.tsv >"$work/less"
cp "$work/less" generated/catalog.tsv
check 1 "^tiny_fp32__sm90a_v8_w4_plain: only at the revision$" HEAD
git show HEAD:generated/catalog.tsv | sed '/^tiny/s/[0-9a-f]*$/-/' >generated/catalog.tsv
check 0 "4 variants, 0 of other code, 4 of unknown code" HEAD
exit "$failed"
