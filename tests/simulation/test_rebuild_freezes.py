"""Processes that stand still in the middle of a rebuild, a sweep or a deletion, and go on when others
have done the same, have taken the next step, or have founded another consumer of the name."""

import random

import pytest

from streamkit.aggregates.sweeping import Sweeping
from streamkit.cursor import CursorStore
from streamkit.fleet.generation import newest_generation
from streamkit.operating.consumers import delete_consumer
from streamkit.testing.world import Process
from tests.simulation.rebuilds import (
    FAST,
    Gate,
    Sale,
    Session,
    app_of,
    is_exact,
    open_existing,
    pass_hours,
    rebuild,
    session_app,
    store_of,
    until,
)


class Other(Process):
    """Does one thing beside the harness's worker, and stands still where its gate says."""

    def __init__(self, harness, work, gate):
        super().__init__("other", faults=gate)
        self.harness, self.error = harness, None
        self.task = harness._loop.create_task(self.run(work))

    async def run(self, work):
        async with self.harness.world.clients(self) as aws:
            try:
                await work(aws)
            except Exception as error:
                self.error = error

    def go_on(self, gate):
        """Let it go on to its end."""
        gate.open.set()
        for _ in range(100):
            if self.task.done():
                return
            self.harness.advance("2s")
        raise AssertionError("what stood still does not end")


def deletes_entries(call):
    return call.operation == "TransactWriteItems" and b"#ledger#" in call.payload


def deletes_segments(call):
    return call.operation == "TransactWriteItems" and b"#cursor#build." in call.payload


def creates_a_sweep(call):
    return call.operation == "TransactWriteItems" and b"#cursor#sweep." in call.payload


def takes_a_sweep(call):
    return call.operation == "UpdateItem" and b"#cursor#sweep." in call.payload


def deletion(harness):
    table, clock = harness.app.table, harness.world.clock
    return lambda aws: delete_consumer(aws, table, harness.app.name, clock=clock)


def build_number(harness, name):
    return harness._run(newest_generation(store_of(harness))).builds[name].number


def entries(harness):
    items = harness.world.items(harness.app.table)
    return [i for i in items if "#ledger#" in str(i) or "#cursor#build." in str(i)]


def founded_again(harness, name):
    """Delete the consumer, found it again, and rebuild: the build has the number it had before."""
    number = build_number(harness, name)
    harness.stop()
    harness.operate(deletion(harness))
    harness._settings = FAST
    harness.settle()
    rebuild(harness, aggregate=name)
    assert build_number(harness, name) == number


@pytest.mark.parametrize("place", [deletes_entries, deletes_segments])
def test_a_deleter_that_thaws_deletes_nothing_of_a_consumer_founded_later(harness_of, place):
    harness = harness_of(app_of(), settings=FAST)
    open_existing(harness)
    rebuild(harness)
    harness.stop()
    gate = Gate(place)
    zombie = Other(harness, deletion(harness), gate)
    until(harness, gate.met)
    founded_again(harness, "Sales")
    kept = entries(harness)
    zombie.go_on(gate)
    assert "somebody else" in str(zombie.error)
    assert entries(harness) == kept
    harness.put(Sale(number=1, shop="a", amount=90))
    harness.delete(Sale.key(number=2))
    assert is_exact(harness)


SWEEP = Sweeping.once


@pytest.fixture
def idle_leader(monkeypatch):
    """The leading worker sweeps nothing: somebody else does."""

    async def nothing(_):
        return

    monkeypatch.setattr(Sweeping, "once", nothing)


def sweep(harness):
    async def once(aws):
        store = CursorStore(aws.dynamodb, harness.around.space(harness.app))
        await SWEEP(Sweeping(store, harness.world.clock, random.Random(1)))

    return once


@pytest.mark.usefixtures("idle_leader")
def test_a_sweeper_that_thaws_deletes_nothing_of_a_consumer_founded_later(harness_of):
    harness = harness_of(app_of(), settings=FAST)
    open_existing(harness)
    rebuild(harness)
    pass_hours(harness, 4)
    harness.stop()
    gate = Gate(deletes_entries)
    zombie = Other(harness, sweep(harness), gate)
    until(harness, gate.met)
    founded_again(harness, "Sales")
    kept = entries(harness)
    zombie.go_on(gate)
    assert zombie.error is None
    assert entries(harness) == kept
    harness.put(Sale(number=1, shop="a", amount=90))
    assert is_exact(harness)


@pytest.mark.usefixtures("idle_leader")
@pytest.mark.parametrize(
    "gate",
    [Gate(creates_a_sweep), Gate(creates_a_sweep, after=True), Gate(takes_a_sweep)],
    ids=["before", "after", "taking"],
)
def test_a_sweeper_by_scans_that_thaws_when_all_is_swept_leaves_nothing(harness_of, gate):
    harness = harness_of(session_app(), settings=FAST)
    harness.put(*(Session(token=f"t{n}", shop="ab"[n % 2]) for n in range(5)))
    harness.settle()
    rebuild(harness, aggregate="Active")
    pass_hours(harness, 4)
    zombie = Other(harness, sweep(harness), gate)
    until(harness, gate.met)
    for _ in range(2):
        harness.operate(sweep(harness))
        harness.advance("20m")
    assert harness._run(newest_generation(store_of(harness))).builds["Active"].state == "live"
    zombie.go_on(gate)
    assert zombie.error is None
    assert entries(harness) == []
    assert not [i for i in harness.world.items("Sessions") if "#cursor#sweep." in str(i)]


def ends_a_sweep(call):
    return b'"Update"' in call.payload and b'#consumer"' in call.payload


@pytest.mark.usefixtures("idle_leader")
def test_a_sweep_that_is_broken_off_before_its_last_write_scans_nothing_again(harness_of):
    harness = harness_of(session_app(), settings=FAST)
    harness.put(*(Session(token=f"t{n}", shop="ab"[n % 2]) for n in range(5)))
    harness.settle()
    rebuild(harness, aggregate="Active")
    pass_hours(harness, 4)
    gate = Gate(ends_a_sweep)
    zombie = Other(harness, sweep(harness), gate)
    until(harness, gate.met)
    before = len(harness.world.calls)
    harness.operate(sweep(harness))
    assert harness._run(newest_generation(store_of(harness))).builds["Active"].state == "live"
    assert [call for call in harness.world.calls[before:] if call.operation == "Scan"] == []
    zombie.go_on(gate)
