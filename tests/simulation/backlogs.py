"""A backlog on one shard, and how often handlers run while it is worked off: once a change, or so.

Each kind of handler is made by a function of an app, so that any of them can stand beside any.
"""

import contextlib
from collections.abc import Sequence
from typing import Annotated
from unittest import mock

from streamkit import (
    Add,
    Aggregate,
    App,
    Count,
    Entity,
    Inserted,
    Key,
    Put,
    Query,
    Set,
    Sum,
    Table,
    Top,
)
from streamkit.core import dispatch, runs
from streamkit.kinds.aggregate.adding import Delta, GroupTotals
from streamkit.testing import Harness
from streamkit.testing.chance import repeatable
from tests.rigs import Rig

GROUPS = 30


class Bid(Entity, pk="LOT#{lot:02d}", sk="BID#{number:05d}"):
    lot: int
    number: int
    amount: int = 0
    owner: str = ""


class Owner(Entity, pk="OWNER#{lot:02d}", sk="OWNER"):
    lot: int
    name: str


class Bids(Entity, pk="BIDS#{lot:02d}#{number:05d}", sk="BIDS"):
    lot: int
    number: int
    bids: int = 0


class Seller(Entity, pk="SELLER#{lot:02d}", sk="SELLER"):
    lot: int
    heard: int = 0


class Follower(Entity, pk="LOT#{lot:02d}", sk="FOLLOWER#{name}"):
    lot: int
    name: str


class Told(Entity, pk="TOLD#{name}", sk="LOT#{lot:02d}#{number:05d}"):
    name: str
    lot: int
    number: int


class Totals(Aggregate[Bid], pk="TOTALS#{lot:02d}", sk="TOTALS"):
    lot: int
    bids: Annotated[int, Count()] = 0
    amount: Annotated[int, Sum("amount")] = 0

    @classmethod
    def group(cls, bid: Bid) -> Key["Totals"]:
        return cls.key(lot=bid.lot)


class Best(Aggregate[Bid], pk="BEST#{lot:02d}", sk="BEST"):
    lot: int
    best: Annotated[tuple[int, ...], Top(3, by="amount")] = ()

    @classmethod
    def group(cls, bid: Bid) -> Key["Best"]:
        return cls.key(lot=bid.lot)

    @classmethod
    def members(cls, lot: int) -> Query[Bid]:
        return Bid.query(lot=lot)


def _add(app: App) -> None:
    @app.on
    def added(change: Inserted[Bid]) -> Add[Bids]:
        return Add(Bids.key(lot=change.new.lot, number=change.new.number), bids=1)


def _read(app: App) -> None:
    @app.on
    async def heard(change: Inserted[Bid], table: Table) -> Put[Seller]:
        key = Seller.key(lot=change.new.lot)
        seller = await table.get(key) or Seller(lot=change.new.lot)
        return Put(seller.model_copy(update={"heard": seller.heard + 1}))


def _fan_out(app: App) -> None:
    def followers(change: Inserted[Bid]) -> Query[Follower]:
        return Follower.query(lot=change.new.lot)

    @app.fan_out(followers)
    def told(change: Inserted[Bid], to: Follower) -> Put[Told]:
        return Put(Told(name=to.name, lot=change.new.lot, number=change.new.number))


def _derive(app: App) -> None:
    @app.derive
    def marker(bid: Bid) -> Bids:
        return Bids(lot=bid.lot + 50, number=bid.number)


def _mirror(app: App) -> None:
    def bids_of(owner: Owner) -> Query[Bid]:
        return Bid.query(lot=owner.lot)

    def owner_of(bid: Bid) -> Key[Owner]:
        return Owner.key(lot=bid.lot)

    @app.mirror(copies=bids_of, source=owner_of)
    def owned(owner: Owner, bid: Bid) -> Set[Bid]:
        return Set(bid.item_key, owner=owner.name)


KINDS = {
    "sum": lambda app: app.aggregate(Totals),
    "top": lambda app: app.aggregate(Best),
    "add": _add,
    "read": _read,
    "fan_out": _fan_out,
    "derive": _derive,
    "mirror": _mirror,
}


def runs_per_change(kinds: tuple[str, ...], backlog: int, groups: int = GROUPS) -> float:
    """Work off a backlog on one shard and return how often its handlers ran, each, per change.

    Raises:
        AssertionError: what the handlers left behind is not what the backlog makes of it.
    """
    app = App("auction", table="Auction")
    for kind in kinds:
        KINDS[kind](app)
    times = 0
    resolve = dispatch.resolve

    def counted(*arguments: object) -> None:
        nonlocal times
        times += 1
        resolve(*arguments)  # type: ignore[arg-type]

    add = GroupTotals.add

    def summed(totals: GroupTotals, deltas: Sequence[Delta]) -> None:
        nonlocal times
        times += 1
        add(totals, deltas)

    with contextlib.ExitStack() as stack:
        stack.enter_context(repeatable(0))
        harness = stack.enter_context(Rig(app, shards=1))
        harness.put(Follower(lot=1, name="ann"), Owner(lot=2, name="bob"))
        bids = [bid(number, groups) for number in range(backlog)]
        harness.put(*bids)
        for module in (dispatch, runs):  # of `def` handlers, and of all others
            module.resolve = counted  # type: ignore[attr-defined]
            stack.callback(setattr, module, "resolve", resolve)
        stack.enter_context(mock.patch.object(GroupTotals, "add", summed))  # of changes in blocks
        harness.settle()
        _compare(harness, kinds, bids)
    return times / backlog / len(kinds)


def bid(number: int, groups: int) -> Bid:
    return Bid(lot=number % groups, number=number, amount=number * 7919 % 1000)


def _compare(harness: Harness, kinds: tuple[str, ...], bids: list[Bid]) -> None:
    for lot in {bid.lot for bid in bids}:
        of_lot = [bid.amount for bid in bids if bid.lot == lot]
        if "sum" in kinds:
            totals = harness.get(Totals.key(lot=lot))
            assert totals is not None
            assert (totals.bids, totals.amount) == (len(of_lot), sum(of_lot))
        if "top" in kinds:
            best = harness.get(Best.key(lot=lot))
            assert best is not None
            assert best.best == tuple(sorted(of_lot, reverse=True)[:3])
        if "read" in kinds:
            seller = harness.get(Seller.key(lot=lot))
            assert seller is not None
            assert seller.heard == len(of_lot)
    last = bids[-1]
    if "add" in kinds:
        added = harness.get(Bids.key(lot=last.lot, number=last.number))
        assert added is not None
        assert added.bids == 1
