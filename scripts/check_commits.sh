#!/bin/sh
# Do commits follow the rule of CONTRIBUTING.md: a subject of at most 72
# characters, then an empty line and a body?
#
#     scripts/check_commits.sh [RANGE]
#
# The default range is the commits ahead of origin's main, or the last 20 where
# there is no such branch. Commits up to BASE are older than the rule and are
# not looked at; nor are merges.
set -eu
cd "$(dirname "$0")/.."
BASE=${BASE:-5e385e4}

if [ $# -gt 0 ]; then
    range=$1
elif git rev-parse --verify --quiet origin/main >/dev/null; then
    range=origin/main..HEAD
else
    range=-20
fi
old=
# A shallow clone may lack the base; then every commit that it has is newer.
git rev-parse --verify --quiet "$BASE^{commit}" >/dev/null && old="^$BASE"

case $range in
-*) commits=$(git rev-list --no-merges "$range" HEAD $old) ;;
*) commits=$(git rev-list --no-merges "$range" $old) ;;
esac

bad=0
complain() { # COMMIT SENTENCE
    echo "$(git log -1 --format='%h %s' "$1" | cut -c1-60): $2" >&2
    bad=1
}
for commit in $commits; do
    first=$(git log -1 --format=%B "$commit" | sed -n 1p)
    second=$(git log -1 --format=%B "$commit" | sed -n 2p)
    body=$(git log -1 --format=%b "$commit" | grep -iv '^[a-z-]*-by: ' | grep -c '[^[:space:]]' || true)
    length=$(printf %s "$first" | LC_ALL=C.UTF-8 wc -m)
    [ "$length" -le 72 ] || complain "$commit" "the subject has $length characters; allowed are 72"
    [ -z "$second" ] || complain "$commit" "an empty line must follow the subject"
    [ "$body" -gt 0 ] || complain "$commit" "there is no body; it says why, and what was measured"
    case $first in
    *[!\ ]:\ [!\ ]*) ;;
    *) complain "$commit" "the subject must be 'subsystem: what'" ;;
    esac
done
[ "$bad" = 0 ] || exit 1
echo "$(printf '%s' "$commits" | grep -c . || true) commits follow the rule"
