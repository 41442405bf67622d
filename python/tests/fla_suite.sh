#!/bin/sh
# Runs FLA's own tests of KDA with attngen's backend on, and says which tests it served.
#
#     python/tests/fla_suite.sh FLA_CHECKOUT [PYTHON] [PYTEST_ARGUMENT...]
#
# Training alone, gradients included, in 16 processes (pytest-xdist), without what is declined and takes FLA's kernels:
#
#     python/tests/fla_suite.sh FLA_CHECKOUT python3 -n 16 -k 'test_chunk and not D60 and not D100 and not size32'
#
# The checkout is of the version that is installed; nothing of it is copied. A test passes by FLA's own tolerances.
# Each test's line says what attngen served in it; the run fails where no test of a function that attngen has was
# served, for then the backend was not asked.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
checkout=$(cd "$1" && pwd)
python=${2:-python3}
[ $# -ge 2 ] && shift 2 || shift 1
tests=
for name in tests/ops/test_kda.py tests/ops/test_kda_fused_recurrent.py tests/ops/test_backends.py; do
    [ -e "$checkout/$name" ] && tests="$tests $checkout/$name"
done
[ -n "$tests" ] || { echo "fla_suite.sh: $checkout has no tests/ops/test_kda.py" >&2; exit 1; }
cd "$checkout"
# shellcheck disable=SC2086
PYTHONPATH="$here${PYTHONPATH:+:$PYTHONPATH}" "$python" -m pytest -q -rs -p fla_route -p no:cacheprovider $tests "$@"
