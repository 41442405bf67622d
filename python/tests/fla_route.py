# SPDX-License-Identifier: MIT
"""A plugin of pytest: turns attngen's backend on in FLA's own tests and reports what it served in each.

What a test's process saw travels with the test's report, so pytest-xdist (-n) may run tests in several processes.
"""

import collections

import pytest

FUNCTIONS = ("chunk_kda_fwd_intra", "recompute_w_u_fwd", "chunk_gated_delta_rule_fwd_h", "chunk_gla_fwd_o_gk")
# Where this is served whole, its stages are not called.
WHOLE = "chunk_kda"
per_test = {}
total = collections.Counter()


def pytest_sessionstart(session):
    import attngen.fla

    attngen.fla.register()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    import attngen.fla as backend

    before = collections.Counter(backend.served)
    backend.declined.clear()
    yield
    item.user_properties.append(("attngen", (dict(backend.served - before), dict(backend.declined))))


def pytest_runtest_logreport(report):
    for name, value in report.user_properties:
        if name == "attngen" and report.when == "call":
            served, declined = value
            total.update(served)
            per_test[report.nodeid] = (served, declined)


def pytest_terminal_summary(terminalreporter):
    terminalreporter.section("what attngen served")
    for name, (served, declined) in per_test.items():
        terminalreporter.write_line(f"{name.split('::')[-1]}: served {served or 'nothing'}")
        for function, reason in declined.items():
            terminalreporter.write_line(f"    {function} declined: {reason}")
    terminalreporter.write_line(f"in all: {dict(total)}, in {sum(bool(s) for s, _ in per_test.values())} of "
                                f"{len(per_test)} tests")


def pytest_sessionfinish(session, exitstatus):
    if hasattr(session.config, "workerinput"):  # of pytest-xdist: the process that started it judges
        return
    missing = [name for name in FUNCTIONS if not total[name]]
    if per_test and missing and not total[WHOLE] and exitstatus == 0:
        print(f"fla_route: attngen served no call of {', '.join(missing)}: the route was not taken")
        session.exitstatus = 1
