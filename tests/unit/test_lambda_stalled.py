"""A batch is stalled if its first change waits for a handler that did not return in time."""

from types import SimpleNamespace

import pytest

from streamkit.aws_lambda.batch import BatchRun


def run_of(*waiting, cut=True, pending=True):
    """Return a run whose first change has these outcomes: `waits`, `blocks` or `done`."""
    outcomes = [SimpleNamespace(waiting=one != "done", handler=one) for one in waiting]
    changes = [SimpleNamespace(outcomes=outcomes)] if pending else []
    failures = SimpleNamespace(blocks=lambda handler: handler == "blocks")
    run = BatchRun.__new__(BatchRun)
    run.loop = SimpleNamespace(pending=changes, cut=cut)
    run.dispatcher = SimpleNamespace(failures=failures)
    return run


@pytest.mark.parametrize("outcomes", [("waits",), ("done", "waits")])
def test_a_change_that_waits_when_the_time_is_over_is_stalled(outcomes):
    assert run_of(*outcomes).stalled


@pytest.mark.parametrize(
    "run",
    [
        run_of("waits", cut=False),
        run_of("done"),
        run_of("blocks"),
        run_of("waits", "blocks"),
        run_of(pending=False),
    ],
    ids=["in time", "done", "blocks", "one blocks", "nothing left"],
)
def test_what_is_done_or_blocks_or_has_time_left_is_not_stalled(run):
    assert run.stalled is False
