#!/bin/sh
# Does scripts/check_commits.sh find each fault of a commit, and nothing else?
#
#     check_commits.sh SOURCE_FOLDER
set -eu
command -v git >/dev/null || { echo "skipped: there is no git"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/scripts"
cp "$1/scripts/check_commits.sh" "$work/scripts"
cd "$work"
export GIT_AUTHOR_NAME=test GIT_AUTHOR_EMAIL=test@localhost GIT_COMMITTER_NAME=test GIT_COMMITTER_EMAIL=test@localhost
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
git init -q -b main .
long=$(printf 'select: %064d' 0) # 72 characters

# try STATUS PATTERN MESSAGE: one commit with this message, checked by itself.
try() {
    printf '%s\n' "$3" | git commit -q --allow-empty --cleanup=verbatim -F -
    scripts/check_commits.sh -1 >log 2>&1 && found=0 || found=1
    if [ "$found" != "$1" ] || ! grep -q "$2" log; then
        echo "FAILED: exit status $found for: $3" >&2
        cat log >&2
        exit 1
    fi
}
body='

It says why.'
try 0 '^1 commits follow' "select: what$body"
base=$(git rev-parse HEAD)
try 0 '^1 commits follow' "$long$body"
try 1 'has 73 characters; allowed are 72' "${long}0$body"
try 1 'there is no body' 'select: what'
try 1 'there is no body' 'select: what

Signed-off-by: somebody'
try 1 'an empty line must follow' 'select: what
and more

It says why.'
try 1 "must be 'subsystem: what'" "what$body"
try 0 '^1 commits follow' "select: größer als vorher, $(printf 'ä%.0s' $(seq 45))$body" # characters, not bytes
BASE=$base scripts/check_commits.sh "$base" | grep -q '^0 commits follow'
! BASE=$base scripts/check_commits.sh "$base..HEAD" >log 2>&1 || { echo "FAILED: a range" >&2; exit 1; }
[ "$(grep -c . log)" = 5 ] || { echo "FAILED: a range has five complaints" >&2; cat log >&2; exit 1; }
! BASE=$base scripts/check_commits.sh >log 2>&1 || { echo "FAILED: the default range" >&2; exit 1; }
echo "passed"
