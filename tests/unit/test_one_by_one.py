"""A shard whose workers vanish: each change is recorded, and then runs alone, until one is found."""

from datetime import UTC, datetime
from types import SimpleNamespace

import anyio
import pytest

from streamkit.progress.control import Cursor
from streamkit.testing.loop import run_virtually
from streamkit.worker.one_by_one import OneByOne


def records(*numbers):
    then = datetime(2026, 5, 1, tzinfo=UTC).timestamp()
    return [SimpleNamespace(position=f"{number}", created_at=then) for number in numbers]


class Shard:
    """Writes down what is done with the records of a shard; `boring` ones have no handler."""

    def __init__(self, *, takes=0, trying="", tries=1, boring=(), left_after=None, raw=False):
        self.did, self.failures, self.boring, self.left_after = [], [], boring, left_after
        self.tries = tries
        dispatcher = SimpleNamespace(
            wants=lambda record: record.position not in boring,
            unrun=self.unrun,
            dispatch=self.dispatch,
            raw=raw,
        )
        self.stage = SimpleNamespace(
            cursor=Cursor("s", takes=takes, trying=trying, tries=tries),
            shard="s",
            stopping=anyio.Event(),
            left=False,
            dispatcher=dispatcher,
            enqueue=self.enqueue,
            run=self.commit,
            run_later=self.run_later,
        )
        go_live = SimpleNamespace(as_run="as run", settle=self.settle)
        reading = SimpleNamespace(alone=self)
        checkpoints = SimpleNamespace(trying=self.trying)
        self.singly = OneByOne(self.stage, checkpoints, go_live, reading)
        self.singly.begin()

    async def __aenter__(self):
        self.did.append("alone")

    async def __aexit__(self, *error):
        self.did.append("others")

    async def trying(self, position):
        self.did.append(f"record {position}")
        return self.tries

    def unrun(self, record, failure, as_run):
        self.failures.append(failure)
        return [f"parked {record.position}"]

    async def dispatch(self, page, shard, as_run):
        (record,) = page.records
        self.did.append(f"run {record.position}")
        return [f"change {record.position}"], ["later"], None

    async def settle(self):
        self.did.append("settle")

    async def run_later(self, later, pending):
        self.did.append(f"run {later} of {pending}")

    def enqueue(self, pending, *, traffic):
        *changes, done = pending
        assert traffic is bool(changes)
        self.did.append(f"{changes} to {done.position}")

    async def commit(self):
        self.did.append("commit")
        self.stage.left = self.did.count("commit") == self.left_after

    def process(self, *numbers):
        return run_virtually(lambda: self.singly.process(records(*numbers)))


@pytest.mark.parametrize(
    ("takes", "trying", "suspects"), [(0, "", False), (2, "", False), (3, "", True), (0, "7", True)]
)
def test_a_shard_is_suspected_after_three_owners_and_at_once_behind_one_that_ran_a_change_alone(
    takes, trying, suspects
):
    assert Shard(takes=takes, trying=trying).singly.suspects is suspects


def test_each_change_is_recorded_runs_and_is_committed_before_the_next_one_begins():
    shard = Shard(takes=3, boring="2")
    assert shard.process(1, 2) == 1
    assert shard.did == [
        *("alone", "record 1", "run 1", "settle", "run ['later'] of ['change 1']"),
        *("['change 1'] to 1", "commit", "others"),
        *("alone", "[] to 2", "commit", "others"),
    ]
    assert not shard.singly.suspects


def test_a_page_without_a_change_for_a_handler_says_nothing_about_the_suspicion():
    shard = Shard(takes=3, boring="12")
    assert shard.process(1, 2) == 0
    assert shard.singly.suspects


def test_what_is_left_to_the_next_owner_is_not_passed_over_and_stays_suspected():
    shard = Shard(takes=3, left_after=1)
    assert shard.process(1, 2) is None
    assert "record 2" not in shard.did
    assert shard.singly.suspects
    shard = Shard(takes=3)
    shard.stage.stopping.set()
    assert shard.process(1) is None
    assert shard.did == []


def test_a_change_that_two_workers_died_of_is_parked_unrun_until_a_person_looks():
    shard = Shard(trying="1", tries=2)
    assert shard.process(1) == 1
    assert "run 1" in shard.did
    shard = Shard(trying="1", tries=3)
    assert shard.process(1) == 1
    assert shard.did == ["alone", "record 1", "['parked 1'] to 1", "commit", "others"]
    (failure,) = shard.failures
    assert (failure.kind, failure.attempts, failure.heals) == ("WorkerKilled", 2, False)
    assert "2 workers in a row ended" in failure.detail
