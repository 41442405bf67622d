#!/bin/sh
# How many small mistakes in what checks products, tables, plans, problems and arguments do the tests
# notice? Each mutant is one change of a source: a comparison, a constant off by one, a check left
# out. It is compiled, linked into the tests that matter for that source, and they run. Less than
# 95 % noticed is a failure.
#
#     scripts/mutate.sh [--all] [--list] [SOURCE...]
#
#         --all    every mutant; without it a sample that is the same each time
#         --list   prints the mutants and runs none
#
#     ATTNGEN_MUTANTS=N    how many the sample has; 300
#
# The build folder is build-mutate.
set -eu
cd "$(dirname "$0")/.."
case " $* " in
*" --list "*) ;;
*) cmake --preset mutate >/dev/null ;;
esac
exec python3 scripts/mutate.py "$@"
