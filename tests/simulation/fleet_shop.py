"""The shop as a fleet runs it: two versions of its app, and what its table owes at every commit.

`Books` is the invariant that ties effects to positions: at the instant of each commit, the items of
the handlers that never park are exactly what the records up to the committed positions make of
them. Nothing may be in the table before its position, and nothing after it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Annotated, Any

from streamkit import (
    Aggregate,
    App,
    Change,
    Count,
    Entity,
    Key,
    Put,
    Set,
    Table,
)
from streamkit.changes import ItemKey
from streamkit.core.parking import queue_name
from streamkit.progress.control import START
from streamkit.testing.sightings import SeenCall, SeenWrite
from tests.simulation import shop

_DIGEST = 1_000_003
_SALES = 8
"""Sales that `shop.Traffic` writes."""


class Newest(Entity, pk="NEWEST#{number}", sk="NEWEST#{number}"):
    number: int
    amount: int


class Trail(Entity, pk="TRAIL#{number}", sk="TRAIL#{number}"):
    number: int
    digest: int = 0


class Dear(Aggregate[shop.Sale], pk="SHOP#{shop}", sk="DEAR"):
    """What only the second version counts."""

    shop: str
    dear: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, sale: shop.Sale) -> Key["Dear"]:
        return cls.key(shop=sale.shop)


def make_app(version: int, on_loss: str = "halt") -> App:
    """Make the app; the second version has an aggregate more, and so another fingerprint."""
    app = shop.make_app()
    app.on_loss = on_loss
    if version > 1:
        app.aggregate(Dear)

    @app.on
    def newest(change: Change[shop.Sale]) -> Put[Newest]:
        sale = change.new or change.old
        return Put(Newest(number=sale.number, amount=sale.amount if change.new else -1))

    @app.on(timeout=shop.UNTIMED)
    async def trail(change: Change[shop.Sale], table: Table) -> Set[Trail]:
        """Depend on the order of an item's changes: each step multiplies what was there."""
        sale = change.new or change.old
        before = await table.get(Trail.key(number=sale.number))
        digest = step(before.digest if before else 0, sale.amount if change.new else -1)
        return Set(Trail.key(number=sale.number), digest=digest)

    return app


def step(digest: int, amount: int) -> int:
    """Go one step along a trail."""
    return (digest * 31 + amount + 7) % _DIGEST


def amount_of(image: dict[str, Any] | None) -> int:
    """Return what `newest` and `trail` take from an image."""
    return -1 if image is None else int(image["amount"]["N"])


class Books:
    """Effects and positions agree at every commit; an `Invariant`.

    Counts of shops (`ShopSales`, `Last`, `Dear`), and of each item `Newest`, `Trail`. `Edits` and
    `Receipt` are compared at the end of a run only, with the log of writes. A record that is
    missed, because it was trimmed, is owed to nothing.
    """

    def __init__(
        self, versions: dict[str, int], is_missed: Callable[[SeenWrite], bool] = lambda _: False
    ) -> None:
        self._versions = versions  # by fingerprint
        self._is_missed = is_missed
        self._places: dict[tuple[str, int], tuple[int, int]] = {}
        self._changes: Counter[int] = Counter()
        self._generations: dict[int, int] = {}  # to versions
        self._unread: dict[str, list[SeenWrite]] = defaultdict(list)
        self._owed: Counter[tuple[str, str, str]] = Counter()
        self._there: dict[tuple[str, str], dict[str, Any]] = {}
        self._touched: set[tuple[str, str]] = set()
        self.passed = 0

    def places(self, writes: list[SeenWrite]) -> frozenset[tuple[int, int]]:
        """Name changes as the log of writes does: the number of a sale, and which of its changes."""
        keys = [(write.shard, write.sequence) for write in writes]
        return frozenset(self._places[key] for key in keys if key in self._places)

    def see(self, sighting: SeenCall) -> Iterator[str]:
        """Check one sighting."""
        self._touched.clear()
        for write in sighting.writes:
            self._note(write)
        for before, after in sighting.cursors():
            if before is None or after is None or after.position == START:
                continue
            if before.position != after.position:
                self._pass(after.name, int(after.position), after.generation)
        for key in sorted(self._touched):
            yield from self._compare(key)

    def _note(self, write: SeenWrite) -> None:
        key = write.keys["PK"]["S"], write.keys["SK"]["S"]
        if write.kind == "consumer":
            image = write.new or {}
            generation = int(image["_sk_generation"]["N"])
            self._generations[generation] = self._versions[image["_sk_fingerprint"]["S"]]
        elif key[0].startswith("SALE#"):
            number = int(key[0].removeprefix("SALE#"))
            self._places[write.shard, write.sequence] = number, self._changes[number]
            self._changes[number] += 1
            self._unread[write.shard].append(write)
        elif key[0].startswith(("SHOP#", "LAST#", "NEWEST#", "TRAIL#")):
            self._there[key] = write.new or {}
            self._touched.add(key)

    def _pass(self, shard: str, position: int, generation: int) -> None:
        writes = self._unread[shard]
        while writes and writes[0].sequence <= position:
            write = writes.pop(0)
            if not self._is_missed(write):
                self._owe(write, self._generations[generation])
                self.passed += 1

    def _owe(self, write: SeenWrite, version: int) -> None:
        for image, sign in ((write.old, -1), (write.new, 1)):
            if image is not None:
                name, amount = f"SHOP#{image['shop']['S']}", int(image["amount"]["N"])
                self._add(name, "SALES", "sales", sign)
                self._add(name, "SALES", "revenue", sign * amount)
                if version > 1:
                    self._add(name, "DEAR", "dear", sign)
        image = write.new or write.old or {}
        last, number = f"LAST#{image['shop']['S']}", image["number"]["N"]
        self._add(last, last, "seen", 1)
        self._add(last, last, "total", int(image["amount"]["N"]))
        newest, trail = f"NEWEST#{number}", f"TRAIL#{number}"
        self._put(newest, "amount", amount_of(write.new))
        digest = step(self._owed[trail, trail, "digest"], amount_of(write.new))
        self._put(trail, "digest", digest)

    def _add(self, pk: str, sk: str, name: str, amount: int) -> None:
        self._owed[pk, sk, name] += amount
        self._touched.add((pk, sk))

    def _put(self, pk: str, name: str, value: int) -> None:
        self._owed[pk, pk, name] = value
        self._touched.add((pk, pk))

    def _compare(self, key: tuple[str, str]) -> Iterator[str]:
        there = self._there.get(key, {})
        for name in _NAMES[key[0].partition("#")[0], key[1] if key[0] != key[1] else ""]:
            found = int(there.get(name, {"N": "0"})["N"])
            if found != self._owed[*key, name]:
                yield f"{key[0]} has {name} = {found}, its positions owe {self._owed[*key, name]}"


_NAMES = {
    ("SHOP", "SALES"): ("sales", "revenue"),
    ("SHOP", "DEAR"): ("dear",),
    ("LAST", ""): ("seen", "total"),
    ("NEWEST", ""): ("amount",),
    ("TRAIL", ""): ("digest",),
}


def expected(
    traffic: shop.Traffic, lost: frozenset[tuple[int, int]] = frozenset()
) -> dict[str, Any]:
    """Recompute from the log of writes, without what is lost, what the table must hold at last."""
    newest, trails, parked = {}, Counter(), Counter()
    for number, changes in shop.kept(traffic, lost).items():
        held = False
        for old, new in changes:
            newest[number] = amount_of(new)
            trails[number] = step(trails[number], amount_of(new))
            if old is not None and new is not None:
                held = held or new["poison"]["BOOL"]
                parked[number] += held
    return shop.expected(traffic, lost) | {
        "newest": newest,
        "trails": dict(trails),
        "parked": {number: n for number, n in parked.items() if n},
    }


def found(world) -> dict[str, Any]:
    """Read the same from the table."""
    items = world.items(shop.TABLE)
    queues = {
        queue_name("edits", ItemKey(f"SALE#{number}", f"SALE#{number}")): number
        for number in range(_SALES)
    }

    def numbers(prefix, name):
        return {
            int(item["PK"]["S"].removeprefix(prefix)): int(item[name]["N"])
            for item in items
            if item["PK"]["S"].startswith(prefix)
        }

    parked = Counter(
        queues[item["_sk_lane"]["S"]] for item in items if item.get("_sk_kind") == {"S": "parked"}
    )
    return shop.found(world) | {
        "newest": numbers("NEWEST#", "amount"),
        "trails": numbers("TRAIL#", "digest"),
        "parked": dict(parked),
    }
