"""A batch is stalled if its first change waits for a handler that did not return in time."""

from collections import deque
from types import SimpleNamespace

import pytest

from streamkit.aws_lambda.batch import BatchRun
from streamkit.testing.loop import run_virtually


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


# -- what is given up, and what is deferred --------------------------------------------------------


class Run(BatchRun):
    """A run that commits without a table."""

    def _loop_of(self, pending):
        return SimpleNamespace(pending=pending)

    async def _commit(self, count):
        return True


@pytest.mark.parametrize(
    ("outcome", "then"),
    [
        ({"waiting": True}, "given up"),
        ({"sends": [1]}, "deferred"),
        ({"sends": [1], "sent": True}, None),  # a second time would be sent twice
        ({"sends": [1], "handler": "blocks"}, None),  # it has no parked queue to go on in
        ({}, None),
    ],
)
def test_when_time_is_over_what_waits_is_given_up_and_what_is_not_sent_goes_on_later(outcome, then):
    did = []
    given = {"waiting": False, "sends": [], "sent": False, "handler": "parks"} | outcome
    one = SimpleNamespace(**given, defer=lambda: did.append("deferred"))
    run = Run.__new__(Run)
    run.loop = SimpleNamespace(pending=deque([SimpleNamespace(outcomes=[one])]))
    failures = SimpleNamespace(
        blocks=lambda handler: handler == "blocks", give_up=lambda *_: did.append("given up")
    )
    run.dispatcher, run.planner = SimpleNamespace(failures=failures), SimpleNamespace(shard="s")
    assert run_virtually(run.time_out)
    assert did == ([] if then is None else [then])


@pytest.mark.parametrize(
    ("waiting", "runs", "is_async", "noted"),
    [
        (True, 1, True, True),
        (False, 1, True, False),
        (True, 0, True, False),  # its turn never came
        (True, 1, False, False),  # it has returned, and its failure is known
    ],
)
def test_the_breaker_hears_of_handlers_that_were_begun_and_have_not_returned(
    waiting, runs, is_async, noted
):
    heard, handler = [], SimpleNamespace(is_async=is_async)
    outcome = SimpleNamespace(waiting=waiting, run=runs, handler=handler)
    run = BatchRun.__new__(BatchRun)
    run.loop = SimpleNamespace(pending=[SimpleNamespace(outcomes=[outcome])])
    run.dispatcher = SimpleNamespace(failures=SimpleNamespace(failed=heard.append))
    run.note_stalled()
    assert heard == ([handler] if noted else [])
