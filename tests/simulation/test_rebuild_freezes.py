"""Processes that stand still in the middle of a rebuild, a sweep or a deletion, and go on when others
have done the same, have taken the next step, or have founded another consumer of the name."""

import random
from typing import Annotated

import pytest

from streamkit import Aggregate, ConfigurationError, Count, Key, Max, Top
from streamkit.fleet.generation import newest_generation
from streamkit.kinds.aggregate.rebuild import rebuild_aggregate
from streamkit.kinds.aggregate.sweep import Sweeping
from streamkit.kinds.aggregate.verification import verify_aggregate
from streamkit.operate.deletion import delete_consumer
from streamkit.progress.cursor import CursorStore
from streamkit.testing import every_freeze
from streamkit.testing.world import Process
from tests.rigs import Rig
from tests.simulation.rebuilds import (
    BROKEN,
    FAST,
    PATIENT,
    Best,
    Bid,
    Gate,
    Operator,
    Sale,
    Sales,
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


@pytest.fixture(autouse=True)
def nothing_is_broken():
    BROKEN.clear()


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


def creates_segments(call):
    return deletes_segments(call) and b'"Update"' in call.payload


def clears(call):
    return call.operation == "TransactWriteItems" and b'"OF#' in call.payload


def drops_what_is_parked(call):
    return call.operation == "TransactWriteItems" and b"#lane#" in call.payload


def computes_extremes(call):
    writes = call.operation == "TransactWriteItems" and b'"BEST#' in call.payload
    return writes and b'"Delete"' not in call.payload


def takes_the_next_step(call):
    return call.operation == "UpdateItem" and b'"scanning' in call.payload


def counts_items(call):
    return call.operation == "TransactWriteItems" and b"#ledger#" in call.payload


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
    assert "another command" in str(zombie.error)
    assert entries(harness) == kept
    harness.put(Sale(number=1, shop="a", amount=90))
    harness.delete(Sale.key(number=2))
    assert is_exact(harness)


SWEEP = Sweeping.once


@pytest.fixture
def idle_leader(monkeypatch):
    """The leading worker sweeps nothing; another one does."""

    async def nothing(_):
        return

    monkeypatch.setattr(Sweeping, "once", nothing)


def sweep(harness):
    async def once(aws):
        store = CursorStore(aws.dynamodb, harness.tables.space(harness.app))
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
    steps = b'"Update"' in call.payload and b'#consumer"' in call.payload
    return steps and b'"Delete"' in call.payload


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


# -- one place in each phase, of a build that is over by then --------------------------------------


def frozen_at(harness, place, name):
    """Let a process that rebuilds stand still at a place, wholly."""
    gate = Gate(place)
    zombie = Operator(harness, "zombie", gate=gate, aggregate=name)
    until(harness, gate.met)
    zombie.freeze()
    return zombie


def thawed(harness, zombie):
    """Let it go on to its end."""
    zombie.thaw()
    zombie.faults.open.set()
    for _ in range(100):
        if zombie.task.done():
            harness.settle()
            return
        harness.advance("2s")
    raise AssertionError("the process that stood still does not end")


@pytest.mark.parametrize("builds", [1, 2])
@pytest.mark.parametrize("place", [clears, takes_the_next_step, creates_segments, counts_items])
def test_who_rebuilds_and_thaws_when_others_have_rebuilt_changes_nothing(harness_of, place, builds):
    harness = harness_of(app_of(), settings=FAST)
    open_existing(harness)
    zombie = frozen_at(harness, place, "Sales")
    for number in range(builds):
        rebuild(harness, name=f"other {number}")
        harness.put(Sale(number=100 + number, shop="a", amount=3), Sale(number=1, shop="c"))
        harness.delete(Sale.key(number=2 + number))
        harness.settle()
    thawed(harness, zombie)
    assert is_exact(harness)
    current = f".Sales.{build_number(harness, 'Sales')}."
    assert all(current in i["_sk_name"]["S"] for i in entries(harness) if "_sk_name" in i)


def deletes_segments_of_before(call):
    return deletes_segments(call) and b'"Delete"' in call.payload


def test_a_rebuild_goes_on_when_another_begins_while_it_deletes_segments_of_before(harness_of):
    harness = harness_of(app_of(Sales, Best), settings=FAST)
    open_existing(harness)
    rebuild(harness, name="before")
    gate = Gate(deletes_segments_of_before)
    again = Operator(harness, "again", gate=gate)
    until(harness, gate.met)
    rebuild(harness, name="another", aggregate="Best")
    gate.open.set()
    assert again.wait().done
    assert is_exact(harness)


def test_who_drops_what_is_parked_and_thaws_later_drops_nothing_that_was_parked_since(harness_of):
    harness = harness_of(app_of(policy=PATIENT), settings=FAST)
    open_existing(harness)
    rebuild(harness)  # what is parked while shards count by the ledger holds its item
    for amount in (5, 6):
        BROKEN.add("odd")
        harness.put(Sale(number=7, shop="odd", amount=amount))
        harness.settle()
        assert len(harness.parked()) == 1
        BROKEN.clear()
        if amount == 5:
            zombie = frozen_at(harness, drops_what_is_parked, "Sales")
            rebuild(harness, name="other")
    thawed(harness, zombie)
    assert len(harness.parked()) == 1
    pass_hours(harness, 3)
    assert is_exact(harness)


def test_who_computes_extremes_and_thaws_when_their_items_are_gone_writes_none(harness_of):
    harness = harness_of(app_of(Best), settings=FAST)
    harness.put(*(Bid(lot="x", number=n, price=10 * n) for n in range(4)))
    harness.settle()
    zombie = frozen_at(harness, computes_extremes, "Best")
    for bid in harness.scan(Bid):
        harness.delete(bid.item_key)
    for name in ("second", "third"):  # after which the group is as it was: not there
        rebuild(harness, name=name, aggregate="Best")
        harness.settle()
    thawed(harness, zombie)
    assert [one.price for one in harness.scan(Best) if one.price is not None] == []


class Long(Aggregate[Bid], pk="BEST#{lot}", sk="LONG"):
    lot: str
    notes: Annotated[tuple[str, ...], Top(20, by="price", of=lambda bid: bid.note)] = ()

    @classmethod
    def group(cls, bid: Bid) -> Key["Long"]:
        return cls.key(lot=bid.lot)

    @classmethod
    def members(cls, lot):
        return Bid.query(lot=lot)


def test_extremes_that_fit_in_no_transaction_are_not_called_computed(harness_of):
    harness = harness_of(app_of(Long, policy=PATIENT), settings=FAST)
    harness.put(*(Bid(lot="x", number=n, price=n, note="x" * 390_000) for n in range(11)))
    harness.settle()
    with pytest.raises(ConfigurationError, match=r"the extremes of group .* do not fit"):
        rebuild(harness, aggregate="Long")


# -- at any call -----------------------------------------------------------------------------------


def rebuilt_with_everything(harness):
    """Rebuild three times an aggregate with extremes, whose contents are wrong, with something parked."""
    BROKEN.clear()
    app, clock = harness.app, harness.world.clock

    def operate():
        done = harness.operate(
            lambda aws: rebuild_aggregate(
                app, aws, "Lots", segments=2, clock=clock, rng=random.Random(1)
            )
        )
        assert done.done

    def groups_are_right():
        found = {one.lot: (one.bids, one.price) for one in harness.scan(Lots) if one.bids}
        assert found == {"x": (2, 1), "y": (3, 99)}
        looked = harness._run(verify_aggregate(app, harness._aws, "Lots", clock=clock))
        assert looked.ok
        assert not looked.unsettled

    harness.put(*(Bid(lot="xyz"[n % 3], number=n, price=10 * n) for n in range(6)))
    harness.settle()
    harness.put(Lots(lot="x", bids=70), Lots(lot="gone", bids=3, price=999))
    operate()
    BROKEN.add("y")
    harness.put(Bid(lot="y", number=7, price=99))
    harness.settle()
    BROKEN.clear()
    for bid in [bid for bid in harness.scan(Bid) if bid.lot == "z"]:
        harness.delete(bid.item_key)
    operate()
    harness.put(Bid(lot="x", number=3, price=1))
    harness.settle()
    groups_are_right()
    operate()  # a command that stood still before it began rebuilds all once more, to the same
    harness.settle()
    groups_are_right()


class Lots(Aggregate[Bid], pk="LOTS#{lot}", sk="LOTS"):
    lot: str
    bids: Annotated[int, Count()] = 0
    price: Annotated[int | None, Max("price")] = None

    @classmethod
    def group(cls, bid: Bid) -> Key["Lots"]:
        if bid.lot in BROKEN:
            raise ValueError("this lot is closed")
        return cls.key(lot=bid.lot)

    @classmethod
    def members(cls, lot):
        return Bid.query(lot=lot)


def a_shop_of_lots():
    return Rig(app_of(Lots, policy=PATIENT), shards=1, settings=FAST)


def test_who_rebuilds_and_stands_still_at_any_call_changes_nothing_when_it_goes_on():
    stops = every_freeze(rebuilt_with_everything, a_shop_of_lots, part="operation", sample=12)
    assert len(list(stops)) >= 12


def test_a_worker_that_stands_still_at_any_call_of_a_rebuild_changes_nothing_when_it_goes_on():
    stops = every_freeze(rebuilt_with_everything, a_shop_of_lots, sample=8)
    assert len(list(stops)) >= 8
