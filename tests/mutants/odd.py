"""Bugs in states that should not occur."""

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "rejoined-for-nobody",
        "fleet/rollout.py",
        '        if me.state == "active" and generation.number <= me.generation:\n',
        "        if not generation:\n",
        "a worker begins anew again and again for a generation that nobody has created",
        test="tests/simulation/test_odd_states.py::test_a_cursor_of_a_generation_that_nobody_created_is_told_once_and_not_rejoined_for",
    ),
    Mutant(
        "refused-parking-is-given-up",
        "core/loop.py",
        "        if found is None or found.parks:\n",
        "        if found is None:\n",
        "a worker tries without a pause, and silently, to park what DynamoDB refuses",
        test="tests/simulation/test_odd_states.py::test_a_worker_whose_parking_is_refused_waits_says_so_and_loses_nothing",
    ),
    Mutant(
        "silent-by-default",
        "operate/status.py",
        "max(_SILENT_SECONDS, _SILENT_LEASES * member.lease)",
        "_SILENT_SECONDS",
        "status calls a worker silent that beats as seldom as it is set to",
        test="tests/simulation/test_odd_states.py::test_status_calls_a_worker_silent_by_the_lease_that_the_worker_has",
    ),
    Mutant(
        "status-by-its-own-clock",
        "operate/status.py",
        "    clock = await store.clock(clock or SystemClock())  # this machine's may be minutes wrong\n",
        "    clock = clock or SystemClock()\n",
        "status on a machine whose clock is wrong calls a worker alive that has long been silent, and a backlog none",
        test="tests/simulation/test_odd_states.py::test_status_tells_lags_and_ages_by_the_tables_clock_where_its_own_is_wrong",
    ),
)
