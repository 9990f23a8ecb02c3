"""An aggregate that is rebuilt is what a recomputation says, whatever goes on meanwhile."""

import itertools
import random
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from typing import Annotated

import anyio
import pytest

from streamkit import Aggregate, App, ConfigurationError, Count, Entity, Key, Sum
from streamkit.core.ledger import LedgerEntry
from streamkit.core.table_shape import TableShape
from streamkit.fleet.generation import newest_generation, stepped, write_generation
from streamkit.kinds.aggregate.rebuild import rebuild_aggregate
from streamkit.operate.deletion import delete_consumer
from streamkit.progress.clock import CorrectedClock
from streamkit.progress.operation import operator as operator_name
from streamkit.progress.scan import pages
from streamkit.settings import Settings
from streamkit.stream.loss import mark_rebuild
from streamkit.testing.every import chosen
from streamkit.testing.world import CrashPoint, Process
from tests.rigs import Rig
from tests.simulation.rebuilds import (
    FAST,
    TABLE,
    Active,
    Best,
    Bid,
    Gate,
    Operator,
    Sale,
    Sales,
    Session,
    app_of,
    cursors_of,
    is_exact,
    ledger_of,
    open_existing,
    pass_hours,
    rebuild,
    scans_a_segment,
    scans_for_groups,
    session_app,
    state_of,
    store_of,
    stored,
    until,
)


class Traffic:
    """Writes, edits, moves and removes sales."""

    def __init__(self, harness, rng):
        self.harness, self.rng = harness, rng

    def act(self):
        sale = Sale(
            number=self.rng.randrange(12),
            shop=self.rng.choice(["a", "b", "c", "none"]),
            amount=self.rng.randrange(1, 50),
        )
        if self.rng.random() < 0.3:
            self.harness.delete(sale.item_key)
        else:
            self.harness.put(sale)


class Trouble:
    """Lets workers and operators die, freeze and come back, and shards split."""

    def __init__(self, harness, rng):
        self.harness, self.rng = harness, rng
        self.operators, self.met = [], Counter()

    def start(self):
        name = f"operator {self.met['operators']}"
        self.met["operators"] += 1
        operator = Operator(self.harness, name, segments=3, lease_seconds=10)
        if self.rng.random() < 0.5:
            moment = self.rng.choice(["before", "after"])
            operator.crash = CrashPoint(self.rng.randrange(60), moment)
        self.operators.append(operator)

    def happen(self):
        dice = self.rng.random()
        alive = [o for o in self.operators if not (o.done or o.dead.is_set())]
        if dice < 0.12 and len(alive) < 3:
            self.start()
        elif dice < 0.2 and alive:
            self.rng.choice(alive).kill()
        elif dice < 0.26 and alive:
            self.rng.choice(alive).freeze()
        elif dice < 0.34:
            for operator in self.operators:
                operator.thaw()
        elif dice < 0.38:
            self.harness.split()
            self.met["split"] += 1
        elif dice < 0.46:
            calls = self.rng.randrange(30)
            self.harness.crash(at=calls, moment=self.rng.choice(["before", "after"]))
            self.met["crash"] += 1


def explore(harness_of, seed):
    """Rebuild under traffic and trouble; all is exact then, and stays so."""
    rng = random.Random(f"rebuild/{seed}")
    harness = harness_of(app_of(), shards=2, seed=seed, settings=FAST)
    open_existing(harness, range(10))
    traffic, trouble = Traffic(harness, rng), Trouble(harness, rng)
    trouble.start()
    for _ in range(60):
        traffic.act()
        trouble.happen()
        if rng.random() < 0.6:
            harness.advance(rng.random() * 8)
        if harness.is_dead:
            harness.worker.revive()
    for operator in trouble.operators:
        operator.thaw()
    rebuild(harness)
    for operator in trouble.operators:
        operator.end()
    assert is_exact(harness)
    for _ in range(10):
        traffic.act()
    assert is_exact(harness)
    assert state_of(harness) == "live"


@pytest.mark.parametrize("seed", range(3))
def test_it_is_exact_whoever_writes_dies_or_freezes_meanwhile(harness_of, seed):
    explore(harness_of, seed)


def test_a_bug_that_is_planted_in_a_rebuild_is_found(harness_of, monkeypatch):
    """A change counts as if its item had been counted before, whatever the ledger says."""
    monkeypatch.setattr(LedgerEntry, "is_live", property(lambda _: True))
    with pytest.raises(AssertionError):
        explore(harness_of, 0)


def scenario(harness, at, moment):
    """Rebuild with an operator that dies at a call, and another one that goes on."""
    harness.put(Sale(number=1, shop="a", amount=3), Sale(number=2, shop="b", amount=4))
    harness.settle()
    harness.put(Sales(shop="a", sales=8), Sales(shop="gone", sales=8))
    first = Operator(harness, "first", segments=1, at_once=1)
    first.crash = None if at is None else CrashPoint(at, moment)
    for _ in range(12):
        if first.done or first.dead.is_set():
            break
        harness.advance("1s")
    harness.put(Sale(number=1, shop="b", amount=5))
    harness.advance("6s")
    if at is not None:
        rebuild(harness, segments=1, lease_seconds=5)
    first.end()
    assert is_exact(harness)
    return first


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_rebuild_killed_at_any_call_goes_on_from_there(moment):
    def make():
        return Rig(app_of(), shards=1, settings=FAST)

    with make() as harness:
        writes = scenario(harness, None, moment).writes
    assert len(writes) > 10
    for at in chosen(writes, 5, seed=0):
        with make() as harness:
            scenario(harness, at, moment)


def test_who_goes_on_with_a_rebuild_clears_only_what_is_left(harness_of):
    harness = harness_of(app_of(), settings=FAST)
    open_existing(harness)
    met = itertools.count(1)
    third = Gate(lambda call: scans_for_groups(call) and next(met) == 3)
    first = Operator(harness, "first", third, segments=3, at_once=1)
    until(harness, third.met)
    first.end()
    rebuild(harness, segments=3, lease_seconds=5)
    assert cleared(harness) == [0, 1, 2]
    assert is_exact(harness)


def cleared(harness):
    """Which segments were read to be cleared, each time."""
    scans = [call.payload for call in harness.world.calls if call.operation == "Scan"]
    return sorted(scan["Segment"] for scan in scans if scan["Limit"] == pages.PAGE_ITEMS)


def reset_segments(harness):
    return [item for item in harness.world.items(TABLE) if "#cursor#clear." in str(item)]


def test_several_processes_share_one_clearing(harness_of):
    harness = harness_of(app_of(), settings=FAST)
    open_existing(harness)
    gates = [Gate(scans_for_groups) for _ in range(2)]
    pair = [Operator(harness, f"{n}", gate=gate, at_once=1) for n, gate in enumerate(gates)]
    for gate in gates:
        until(harness, gate.met)
    for gate in gates:
        gate.open.set()
    assert all(operator.wait().done for operator in pair)
    assert cleared(harness) == [0, 1]
    assert reset_segments(harness) == []
    assert is_exact(harness)


@pytest.mark.parametrize("then", ["another rebuild", "deletion"])
def test_a_clearing_that_was_broken_off_leaves_no_segments(harness_of, then):
    harness = harness_of(app_of(), settings=FAST)
    open_existing(harness)
    gate = Gate(scans_for_groups)
    first = Operator(harness, "first", gate)
    until(harness, gate.met)
    first.end()
    assert len(reset_segments(harness)) == 2
    if then == "deletion":
        harness.stop()
        harness._run(delete_consumer(harness._aws, TABLE, "shop", clock=harness.world.clock))
    else:
        harness._run(mark_rebuild(store_of(harness), frozenset({"Sales"})))
        rebuild(harness)
        assert is_exact(harness)
    assert reset_segments(harness) == []


def under_way(harness, at, moment):
    """Rebuild while the worker dies at a call from now; return which of its calls write."""
    harness.put(Sale(number=1, shop="a", amount=3), Sale(number=2, shop="b", amount=4))
    harness.settle()
    harness.put(Sales(shop="a", sales=8))
    begun = harness.calls
    if at is not None:
        harness.crash(at=at, moment=moment)
    gate = Gate(scans_a_segment, after=True)
    operator = Operator(harness, gate=gate, segments=1)
    until(harness, gate.met)
    harness.put(Sale(number=1, shop="b", amount=5))
    harness.delete(Sale(number=2, shop="b").item_key)
    harness.settle()
    harness.split()
    harness.put(Sale(number=1, shop="c", amount=6), Sale(number=3, shop="a", amount=6))
    harness.settle()
    gate.open.set()
    operator.wait()
    harness.put(Sale(number=3, shop="c", amount=7))
    assert is_exact(harness)
    return [call - begun for call in harness.writes if call >= begun]


def test_a_worker_killed_at_any_call_of_a_rebuild_loses_nothing():
    def make():
        return Rig(app_of(), shards=1, settings=FAST)

    with make() as harness:
        writes = under_way(harness, None, "after")
    assert len(writes) > 15
    stops = chosen([*enumerate(writes)], 6, seed=0)
    died = 0
    for number, at in stops:
        with make() as harness:
            under_way(harness, at, ("after", "before")[number % 2])
            died += bool(harness.restarts or harness.is_dead)
    assert died > len(stops) - 3  # the names of workers decide how many calls there are


def test_several_processes_share_one_scan(harness_of):
    harness = harness_of(app_of(), settings=FAST)
    open_existing(harness, range(20))
    gates = [Gate(scans_a_segment) for _ in range(2)]
    pair = [Operator(harness, f"{n}", gate=gate, at_once=1) for n, gate in enumerate(gates)]
    for gate in gates:
        until(harness, gate.met)
        gate.open.set()
    counts = [operator.wait().counted for operator in pair]
    assert sum(counts) == 20
    assert is_exact(harness)


def test_its_trail_has_each_step_once_however_many_processes_take_part(harness_of):
    harness = harness_of(app_of(), settings=FAST)
    open_existing(harness, range(20))
    pair = [Operator(harness, f"{n}", at_once=1) for n in range(2)]
    for operator in pair:
        operator.wait()
    newest = harness._run(newest_generation(store_of(harness)))
    states = ("emptying", "building", "scanning", "counting")
    assert [entry.what for entry in newest.audit] == [f"rebuild Sales: {one}" for one in states]
    assert newest.audit[0].by == operator_name()


def test_shards_turn_live_and_then_nobody_looks_into_the_ledger(harness_of):
    harness = harness_of(app_of(), settings=FAST)
    open_existing(harness)
    rebuild(harness)
    assert not any(cursor.live for cursor in cursors_of(harness).values())
    pass_hours(harness, 3)
    assert all(cursor.live for cursor in cursors_of(harness).values())
    before = harness.calls
    harness.put(Sale(number=1, shop="b", amount=9))
    assert is_exact(harness)
    reads = [c for c in harness.world.calls if "#ledger#" in str(c.payload)]
    assert harness.calls > before
    harness.put(Sale(number=1, shop="a", amount=9))
    assert is_exact(harness)
    assert [c for c in harness.world.calls if "#ledger#" in str(c.payload)] == reads


def test_a_rebuild_on_a_machine_whose_clock_is_wrong_counts_each_item_once(harness_of):
    harness = harness_of(app_of(), settings=FAST)
    open_existing(harness)
    harness.put(Sale(number=9, shop="a", amount=7))  # the scan comes before its change
    rebuild(harness, clock=CorrectedClock(harness.world.clock, -2 * 3600))
    assert is_exact(harness)


def test_a_change_as_old_as_the_scan_asks_for_another_rebuild(harness_of):
    harness = harness_of(app_of(), settings=FAST)
    open_existing(harness)
    rebuild(harness)
    pass_hours(harness, 3)
    store = store_of(harness)
    newest = harness._run(newest_generation(store))
    late = replace(newest.builds["Sales"], scanned=int(harness.world.clock.time()) + 7200)
    harness._run(write_generation(store, newest, stepped(newest, {"Sales": late})))
    harness.advance("55m")
    harness.put(Sale(number=1, shop="a", amount=9))
    harness.settle()
    assert state_of(harness) == "needs rebuild"


def test_a_shard_of_unknown_parents_asks_for_another_rebuild(harness_of):
    harness = harness_of(app_of(), shards=1, settings=FAST)
    open_existing(harness)
    rebuild(harness)
    harness.stop()
    store = store_of(harness)
    (parent,) = cursors_of(harness)
    harness.roll()
    (child,) = (s["id"] for s in harness.world.control.shards(TABLE) if s["open"])
    harness._run(
        harness._aws.dynamodb.delete_item(TableName=TABLE, Key=store.space.key("cursor", parent))
    )
    harness.world.control.hide(TABLE, parent)
    harness.world.control.trim(TABLE)
    harness.put(Sale(number=1, shop="a", amount=9))
    harness.settle()
    assert child in cursors_of(harness)
    assert state_of(harness) == "needs rebuild"


def test_the_scan_is_strongly_consistent(harness_of):
    harness = harness_of(app_of(), settings=FAST)
    open_existing(harness)
    rebuild(harness)
    scans = [call.payload for call in harness.world.calls if call.operation == "Scan"]
    segments = [scan for scan in scans if "Segment" in scan]
    assert segments
    assert all(scan["ConsistentRead"] for scan in segments)


def test_the_list_says_that_it_is_building(harness_of):
    harness = harness_of(app_of(), settings=FAST)
    open_existing(harness)
    gate = Gate(scans_for_groups)
    operator = Operator(harness, gate=gate)
    until(harness, gate.met)
    assert state_of(harness) == "building"
    gate.open.set()
    operator.wait()
    assert state_of(harness) == "live"


def test_what_is_lost_meanwhile_asks_for_another_rebuild(harness_of):
    harness = harness_of(app_of(), settings=FAST)
    open_existing(harness)
    gate = Gate(scans_a_segment)
    operator = Operator(harness, gate=gate)
    until(harness, gate.met)
    harness._run(mark_rebuild(store_of(harness), frozenset({"Sales"})))
    gate.open.set()
    with pytest.raises(ConfigurationError, match="needs to be rebuilt again"):
        operator.wait()
    assert state_of(harness) == "needs rebuild"
    rebuild(harness)
    assert state_of(harness) == "live"
    assert is_exact(harness)


def test_a_rebuild_that_begins_anew_ends_the_one_before(harness_of):
    harness = harness_of(app_of(), settings=FAST)
    open_existing(harness)
    gate = Gate(scans_a_segment, after=True)
    old = Operator(harness, "old", gate=gate)
    until(harness, gate.met)
    old.freeze()
    harness._run(mark_rebuild(store_of(harness), frozenset({"Sales"})))
    harness.put(Sale(number=0, shop="b", amount=33))
    rebuild(harness)
    gate.open.set()
    old.thaw()
    with pytest.raises(ConfigurationError, match="another rebuild has begun"):
        old.wait()
    assert is_exact(harness)


def test_other_code_rebuilds_nothing(harness_of):
    harness = harness_of(app_of(), settings=FAST)
    open_existing(harness)
    harness.stop()
    with pytest.raises(ConfigurationError, match="start one"):
        rebuild(harness)
    harness.app = app_of(Sales, Best)
    with pytest.raises(ConfigurationError, match="other handlers"):
        rebuild(harness)


class PageViews(Aggregate[Sale], pk="VIEWS#{shop}", sk="VIEWS", approximate=True):
    shop: str
    sales: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, sale: Sale) -> Key["PageViews"]:
        return cls.key(shop=sale.shop)


def test_what_is_approximate_cannot_be_rebuilt(harness_of):
    harness = harness_of(app_of(PageViews), settings=FAST)
    with pytest.raises(ConfigurationError, match="approximate"):
        rebuild(harness, aggregate="PageViews")


# -- other kinds of aggregate ----------------------------------------------------------------------


class Shop(Entity, pk="SHOP#{shop}", sk="SHOP"):
    shop: str
    name: str = ""
    sales: int = 0
    total: Decimal = Decimal(0)


class Onto(Aggregate[Sale], onto=Shop, missing="skip"):
    sales: Annotated[int, Count()] = 0
    total: Annotated[Decimal, Sum("amount")] = Decimal(0)

    @classmethod
    def group(cls, sale: Sale) -> Key[Shop]:
        return Shop.key(shop=sale.shop)


class Spread(Aggregate[Sale], pk="SPREAD#{shop}", sk="SALES", spread=4, remove_empty=True):
    shop: str
    sales: Annotated[int, Count()] = 0
    total: Annotated[Decimal, Sum("amount")] = Decimal(0)

    @classmethod
    def group(cls, sale: Sale) -> Key["Spread"] | None:
        return None if sale.shop == "none" else cls.key(shop=sale.shop)


def test_parts_of_spread_groups_and_empty_groups_come_out_right(harness_of):
    harness = harness_of(app_of(Spread), settings=FAST)
    harness.put(*(Sale(number=n, shop="ab"[n % 2], amount=n) for n in range(6)))
    harness.settle()
    harness.put(Spread(shop="a", sales=50), Spread(shop="gone", sales=5))
    gate = Gate(scans_a_segment, after=True)
    operator = Operator(harness, gate=gate, aggregate="Spread")
    until(harness, gate.met)
    for number in (1, 3, 5):
        harness.delete(Sale(number=number, shop="b").item_key)
    harness.settle()
    gate.open.set()
    operator.wait()
    assert is_exact(harness, Spread)
    assert [one.shop for one in harness.scan(Spread)] == ["a"]


def test_items_of_the_application_get_their_measures_anew_and_nothing_else(harness_of):
    harness = harness_of(app_of(Onto), settings=FAST)
    harness.put(*(Sale(number=n, shop="abc"[n % 3], amount=n) for n in range(6)))
    harness.settle()
    harness.put(Shop(shop="a", name="A", sales=9), Shop(shop="b", name="B", sales=-4))
    harness.put(Shop(shop="d", name="D", sales=2, total=Decimal(2)))
    done = rebuild(harness, aggregate="Onto")
    harness.put(Sale(number=0, shop="b", amount=5))
    harness.settle()
    shops = {one.shop: (one.name, one.sales, one.total) for one in harness.scan(Shop)}
    assert shops == {"a": ("A", 1, 3), "b": ("B", 3, 10), "d": ("D", 0, 0)}
    assert done.missing == 1


def best(harness):
    return {one.lot: (one.bids, one.price) for one in harness.scan(Best) if one.bids}


def test_extremes_are_computed_group_by_group(harness_of):
    harness = harness_of(app_of(Best), settings=FAST)
    harness.put(*(Bid(lot="xy"[n % 2], number=n, price=10 * n) for n in range(6)))
    harness.settle()
    harness.delete(Best.key(lot="x"))
    harness.put(Best(lot="gone", bids=3, price=999))
    gate = Gate(scans_a_segment, after=True)
    operator = Operator(harness, gate=gate, aggregate="Best")
    until(harness, gate.met)
    harness.delete(Bid(lot="y", number=5, price=0).item_key)
    harness.put(Bid(lot="x", number=7, price=7))
    harness.settle()
    gate.open.set()
    operator.wait()
    harness.put(Bid(lot="x", number=4, price=1))
    harness.settle()
    assert best(harness) == {"x": (4, 20), "y": (2, 30)}
    assert [one.price for one in harness.scan(Best) if not one.bids] == []


def reads_the_group(call):
    return call.operation == "Query" and b"LOT#x" in call.payload


def test_a_group_that_changes_while_a_rebuild_computes_it_is_computed_again(harness_of):
    harness = harness_of(app_of(Best), settings=FAST)
    harness.put(*(Bid(lot="x", number=n, price=10 * n) for n in range(4)))
    harness.settle()
    gate = Gate(reads_the_group, after=True)
    operator = Operator(harness, gate=gate, aggregate="Best")
    until(harness, gate.met)
    harness.delete(Bid(lot="x", number=3, price=0).item_key)
    harness.settle()
    gate.open.set()
    operator.wait()
    harness.settle()
    assert best(harness) == {"x": (3, 20)}


def test_a_build_keeps_its_place_in_a_roll_out_that_leaves_its_aggregate_as_it_is(harness_of):
    harness = harness_of(app_of(), settings=FAST)
    open_existing(harness)
    rebuild(harness)
    harness.stop()
    harness.app = app_of(Sales, Best)
    harness.put(Sale(number=1, shop="a", amount=12))
    assert is_exact(harness)
    newest = harness._run(newest_generation(store_of(harness)))
    assert newest.builds["Sales"].state == "counting"
    assert newest.rebuild == {"Best"}
    assert stored(harness)


# -- other tables ----------------------------------------------------------------------------------


class Tick(Entity, pk="{day}", sk="{second}", type="tick"):
    day: int
    second: int
    shop: str


class Ticks(Aggregate[Tick], pk="{shop}", sk="-1", type="ticks"):
    shop: int
    sales: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, tick: Tick) -> Key["Ticks"]:
        return cls.key(shop=-len(tick.shop))


def tick_app():
    options = {"control_table": "Control", "tables": ["Control"]}
    app = App("ticks", table="Ticks", type_attribute="type", **options)
    app.aggregate(Ticks)
    return app


def test_a_table_without_sort_keys_is_rebuilt_and_its_ledger_swept(harness_of):
    harness = harness_of(session_app(), settings=FAST)
    harness.put(*(Session(token=f"t{n}", shop="ab"[n % 2]) for n in range(5)))
    harness.settle()
    harness.put(Active(shop="gone", sales=3), Active(shop="a", sales=1))
    gate = Gate(scans_a_segment, after=True)
    operator = Operator(harness, gate=gate, aggregate="Active")
    until(harness, gate.met)
    harness.put(Session(token="t1", shop="c"), Session(token="t0", shop="b"))
    harness.settle()
    gate.open.set()
    operator.wait()
    harness.settle()
    counts = {"a": 2, "b": 2, "c": 1}
    assert {one.shop: one.sales for one in harness.scan(Active)} == counts
    pass_hours(harness, 6)
    assert [i for i in harness.world.items("Sessions") if "#ledger#" in str(i)] == []
    harness.delete(Session.key(token="t0"))
    harness.settle()
    assert {one.shop: one.sales for one in harness.scan(Active)} == counts | {"b": 1}


def test_a_table_of_number_keys_is_rebuilt_with_its_ledger_in_the_control_table(harness_of):
    shape = TableShape(pk_type="N", sk_type="N")
    harness = harness_of(tick_app(), shape=shape, settings=FAST)
    harness.put(*(Tick(day=n, second=10 * n, shop="x") for n in range(1, 6)))
    harness.settle()
    harness.put(Ticks(shop=-1, sales=40))
    gate = Gate(scans_a_segment, after=True)
    operator = Operator(harness, gate=gate, aggregate="Ticks")
    until(harness, gate.met)
    harness.put(Tick(day=1, second=10, shop="xx"))
    harness.delete(Tick.key(day=2, second=20))
    harness.settle()
    gate.open.set()
    operator.wait()
    harness.settle()
    assert {one.shop: one.sales for one in harness.scan(Ticks)} == {-1: 3, -2: 1}
    assert [i for i in harness.world.items("Control") if "#ledger#" in str(i)]


# -- what builds leave -----------------------------------------------------------------------------


def changed():
    class Sales(Aggregate[Sale], pk="OF#{shop}", sk="SALES"):
        shop: str
        sales: Annotated[int, Count()] = 0
        total: Annotated[Decimal, Sum("amount")] = Decimal(0)

        @classmethod
        def group(cls, sale: Sale) -> Key["Sales"]:
            return cls.key(shop=sale.shop)

    return Sales


def test_the_ledger_of_an_aggregate_that_has_changed_goes_and_it_can_be_rebuilt(harness_of):
    harness = harness_of(app_of(), settings=FAST)
    open_existing(harness)
    rebuild(harness)
    assert ledger_of(harness)
    harness.stop()
    harness.app = app_of(changed())
    harness.settle()
    harness.advance("20m")
    assert ledger_of(harness) == []
    assert state_of(harness) == "needs rebuild"
    rebuild(harness)
    assert is_exact(harness)
    assert state_of(harness) == "live"


def test_a_consumer_that_is_deleted_leaves_no_ledger_and_no_segments(harness_of):
    harness = harness_of(app_of(), settings=FAST)
    open_existing(harness)
    rebuild(harness)
    harness.stop()
    harness._run(delete_consumer(harness._aws, TABLE, "shop", clock=harness.world.clock))
    left = [item for item in harness.world.items(TABLE) if "_sk_kind" in item]
    assert [item["_sk_kind"]["S"] for item in left] == ["index"]


class Distant(Process):
    """Every call of it takes about 20 ms."""

    async def intercept(self, call, apply):
        await anyio.sleep(0.02)
        return await super().intercept(call, apply)


@pytest.fixture
def distant(monkeypatch, harness_of):
    """A shop at default settings, whose every call takes about 20 ms."""
    monkeypatch.setattr("streamkit.testing.rig_worker.Process", Distant)
    monkeypatch.setattr("streamkit.testing.stops.Process", Distant)
    harness = harness_of(app_of(), settings=Settings())
    open_existing(harness)
    return harness


def rebuild_at_once(harness):
    """Rebuild, and return as soon as all is counted: how long that took."""
    app, clock = harness.app, harness.world.clock
    began = clock.time()
    done = harness.operate(
        lambda aws: rebuild_aggregate(app, aws, "Sales", clock=clock, rng=random.Random(1))
    )
    assert done.done
    return clock.time() - began


def test_a_rebuild_tells_each_of_its_steps_when_it_begins(distant):
    app, told = distant.app, []
    distant.operate(
        lambda aws: rebuild_aggregate(
            app,
            aws,
            "Sales",
            clock=distant.world.clock,
            rng=random.Random(1),
            progress=lambda state, _: told.append(state),
        )
    )
    steps = [state for state, before in zip(told, [None, *told], strict=False) if state != before]
    assert steps == ["emptying", "building", "scanning", "counting"]


def test_rebuilds_of_a_few_items_take_two_seconds_however_often(distant):
    took = [rebuild_at_once(distant) for _ in range(6)]
    assert max(took) <= 2.0, took
    assert is_exact(distant)


def members(harness):
    return [i for i in harness.world.items(TABLE) if i.get("_sk_kind") == {"S": "member"}]


def test_a_rebuild_that_begins_while_its_worker_takes_a_step_is_not_refused(distant):
    """A worker that takes the step of a rebuild leaves, and comes back under another name."""
    gaps = 0
    for number in range(12):
        rebuild_at_once(distant)
        for _ in range(1000):
            if not members(distant):
                break
            distant.advance("0.01s")
        gaps += not members(distant)
        distant.advance(f"{number * 0.004}s")
    assert gaps >= 2
    assert is_exact(distant)


def test_a_rebuild_waits_for_a_worker_that_joins_again_and_not_for_one_that_does_not(harness_of):
    harness = harness_of(app_of(), settings=FAST)
    open_existing(harness)
    harness.stop()
    operator = Operator(harness)
    harness.advance("3s")
    assert operator.error is None
    harness.settle()
    assert operator.wait().done
    harness.stop()
    operator = Operator(harness)
    harness.advance("20s")
    assert "no worker of shop is running" in str(operator.error)


def test_a_rebuild_that_takes_longer_than_the_stream_keeps_its_records_is_exact(harness_of):
    """What was counted by the ledger a day ago is still known when the scan comes to it."""
    harness = harness_of(app_of(), settings=FAST)
    open_existing(harness)
    gate = Gate(scans_a_segment, after=True)
    operator = Operator(harness, gate=gate)
    until(harness, gate.met)
    operator.freeze()
    harness.put(Sale(number=0, shop="b", amount=33), Sale(number=70, shop="c"))
    harness.delete(Sale.key(number=1))
    for number in (0, 3):
        harness.settle()
        harness.stop()
        harness.advance("14h")
        harness.put(Sale(number=number, shop="c", amount=5))
    harness.settle()
    harness.world.control.trim(TABLE, before=harness.world.clock.time() - 24 * 3600)
    assert state_of(harness) == "building"
    harness.stop()
    harness.put(Sale(number=4, shop="c", amount=50))
    harness.delete(Sale.key(number=2))
    harness._settings = FAST
    until_scanned(harness, operator)
    assert is_exact(harness)
    assert state_of(harness) == "live"
    harness.put(Sale(number=4, shop="a", amount=2))
    pass_hours(harness, 3)
    harness.put(Sale(number=5, shop="a", amount=2))
    assert is_exact(harness)
    assert state_of(harness) == "live"


def until_scanned(harness, operator):
    """Let a scan end that stood still, while no worker runs: what is unread now, it has counted."""
    operator.thaw()
    operator.faults.open.set()
    assert operator.wait().done
