"""Each invariant says so when it is broken: doctored sightings, beside sound ones that it lets pass."""

from dataclasses import replace

import pytest

from streamkit.progress.control import START
from streamkit.testing.sightings import SeenCall, SeenWrite
from streamkit.testing.world import World
from tests.simulation.coverage import Coverage
from tests.simulation.fleet_shop import Books, make_app, step
from tests.simulation.invariants import (
    Fencing,
    HotLoop,
    Leases,
    Lineage,
    Positions,
    Readers,
    Referee,
    ServiceLimits,
    usual,
)
from tests.simulation.iterators import Iterators
from tests.simulation.made_up import (
    FREE,
    HELD,
    ONCE,
    TWICE,
    asked,
    call,
    image,
    opened,
    read,
    wrote,
)
from tests.simulation.shop import TABLE, create_table

TAKE = wrote("one", FREE, HELD, at=1)
COMMIT = wrote("one", HELD, ONCE, at=2)
STEAL = wrote("two", ONCE, replace(ONCE, owner="bob", epoch=2), at=9)
STOLEN = replace(ONCE, owner="bob", epoch=2)
RETAKEN = wrote("one", ONCE, replace(ONCE, owner="cid", epoch=2), at=9)

SOUND = {
    "a take and two commits": [TAKE, COMMIT, wrote("one", ONCE, TWICE, at=3)],
    "a steal, and the thief commits": [
        TAKE, COMMIT, STEAL, wrote("two", STOLEN, replace(STOLEN, position="7".zfill(40), commit="c"), at=10),
    ],
    "a release and a take": [TAKE, wrote("one", HELD, replace(FREE, epoch=1), at=2), wrote("two", replace(FREE, epoch=1), replace(HELD, owner="bob", epoch=2), at=3)],
    "a slow commit under the lease that still holds": [TAKE, wrote("one", HELD, ONCE, at=30, sent=2)],
    "a commit that moves no position": [TAKE, COMMIT, wrote("one", ONCE, replace(ONCE, commit="b", done=frozenset({"9:h"})), at=3)],
    "two readers at a time": [read("one"), read("two", at=0.1), read("one", at=0.2), read("two", at=0.3)],
    "three owners one after the other": [read("one"), read("two", at=0.3), read("three", at=0.6)],
    "a reader after its position": [TAKE, COMMIT, opened("one", "AFTER_SEQUENCE_NUMBER", 0, at=3)],
    "a reader after the position that it took over": [TAKE, COMMIT, STEAL, opened("two", "AFTER_SEQUENCE_NUMBER", 5, at=9)],
    "a reader after the last page that it was served": [TAKE, read("one", numbers=(5, 6)), opened("one", "AFTER_SEQUENCE_NUMBER", 6, at=3)],
    "a reader before the last page, whose reply may be lost": [TAKE, read("one", numbers=(5, 6)), read("one", after=6, numbers=(8,)), opened("one", "AFTER_SEQUENCE_NUMBER", 6, at=3)],
    "a reader at the horizon that has read nothing, and does not know that a thief has": [
        TAKE, wrote("two", HELD, replace(HELD, owner="bob", epoch=2), at=8),
        wrote("two", replace(HELD, owner="bob", epoch=2), replace(ONCE, owner="bob", epoch=2), at=9),
        opened("one", "TRIM_HORIZON", at=10),
    ],
    "a reader at the horizon, since its position is trimmed": [TAKE, COMMIT, STEAL, opened("two", "AFTER_SEQUENCE_NUMBER", 5, at=9, status=400), opened("two", "TRIM_HORIZON", at=9)],
    "a child after its parent": [TAKE, wrote("one", HELD, replace(ONCE, state="finished"), at=2), read("one", "child", at=3)],
    "an empty page of a child": [read("one", "child", numbers=())],
    "ten listings a second": [asked("one", "DescribeStream", at=n // 10) for n in range(30)],
    "calls at a steady pace": [asked("one", "GetItem", at=n / 2) for n in range(100)],
    "frozen calls that go on together": [asked("one", "GetItem", at=60, sent=50) for _ in range(60)],
}  # fmt: skip

BROKEN = {
    "a zombie commits": (Fencing, [TAKE, COMMIT, STEAL, wrote("one", STOLEN, replace(STOLEN, position="7".zfill(40), commit="c"), at=10)]),
    "a commit sent under the process's own lease of before": (Fencing, [TAKE, COMMIT, RETAKEN, wrote("one", replace(ONCE, owner="cid", epoch=2), replace(TWICE, owner="cid", epoch=2), at=10, sent=8)]),
    "a commit without an owner": (Fencing, [wrote("one", FREE, replace(FREE, position="5".zfill(40), commit="a"))]),
    "a position goes back": (Positions, [TAKE, COMMIT, wrote("one", ONCE, TWICE, at=3), wrote("one", TWICE, replace(TWICE, position="6".zfill(40), commit="c"), at=4)]),
    "a position goes back to the start": (Positions, [TAKE, COMMIT, wrote("one", ONCE, replace(ONCE, position=START, commit="c"), at=4)]),
    "a second commit from the same position": (Positions, [TAKE, COMMIT, wrote("one", ONCE, TWICE, at=3), wrote("one", TWICE, replace(TWICE, commit="a"), at=4)]),
    "a commit without an id of its own": (Positions, [TAKE, COMMIT, wrote("one", ONCE, replace(TWICE, commit="a"), at=3)]),
    "a cursor is created twice": (Positions, [wrote("one", None, FREE), wrote("two", None, FREE)]),
    "a finished shard is read again": (Positions, [TAKE, wrote("one", HELD, replace(ONCE, state="finished"), at=2), wrote("one", ONCE, replace(TWICE, state="active"), at=3)]),
    "an epoch is left as it was": (Leases, [TAKE, wrote("two", HELD, replace(HELD, owner="bob"))]),
    "an epoch begins again": (Leases, [TAKE, wrote("one", HELD, FREE)]),
    "a successor's lease is given up": (Leases, [TAKE, COMMIT, STEAL, wrote("one", STOLEN, replace(STOLEN, owner=None))]),
    "a generation falls": (Leases, [wrote("one", replace(HELD, generation=2), HELD)]),
    "a reader at the tip": (Iterators, [TAKE, COMMIT, opened("one", "LATEST")]),
    "a reader at its position": (Iterators, [TAKE, COMMIT, opened("one", "AT_SEQUENCE_NUMBER")]),
    "a reader at the horizon that has lost its lease, and not what it has read": (Iterators, [
        TAKE, read("one", numbers=(5,)), read("one", after=5, numbers=()), COMMIT, STEAL, opened("one", "TRIM_HORIZON", at=10),
    ]),
    "a reader at the horizon without need": (Iterators, [TAKE, COMMIT, opened("one", "TRIM_HORIZON")]),
    "a reader before what it has read": (Iterators, [TAKE, read("one", numbers=(5, 6)), read("one", after=6, numbers=()), opened("one", "AFTER_SEQUENCE_NUMBER", 5, at=3)]),
    "a reader before the position that it took over": (Iterators, [TAKE, COMMIT, STEAL, opened("two", "AFTER_SEQUENCE_NUMBER", 4, at=9)]),
    "a reader in the middle of a page": (Iterators, [TAKE, read("one", numbers=(5, 6)), opened("one", "AFTER_SEQUENCE_NUMBER", 5, at=3)]),
    "a reader past what it was served": (Iterators, [TAKE, read("one", numbers=(5, 6)), opened("one", "AFTER_SEQUENCE_NUMBER", 7, at=3)]),
    "a reader after what another has read": (Iterators, [TAKE, COMMIT, read("one", after=5, numbers=(6,)), STEAL, opened("two", "AFTER_SEQUENCE_NUMBER", 6, at=9)]),
    "a child before its parent": (Lineage, [TAKE, COMMIT, read("one", "child")]),
    "three readers at the same time": (Readers, [read(name, at=n / 10) for n, name in enumerate(["one", "two", "three", "one", "two"])]),
    "a transaction of 101 actions": (ServiceLimits, [asked("one", "TransactWriteItems", TransactItems=[{}] * 101)]),
    "a transaction of more than 4 MB": (ServiceLimits, [SeenCall("one", 0.0, call("TransactWriteItems", payload={"TransactItems": []}), tuple(SeenWrite("s", n, 0.0, {}, None, {}, 399_000) for n in range(11)))]),
    "an item of more than 400 KB": (ServiceLimits, [SeenCall("one", 0.0, call("PutItem"), (SeenWrite("s", 1, 0.0, {}, None, {}, 410_000),))]),
    "eleven listings a second": (ServiceLimits, [asked(f"w{n}", "DescribeStream", at=5.5 + n / 11) for n in range(11)]),
    "a hot loop": (HotLoop, [asked("one", "GetItem", at=n / 10) for n in range(51)]),
}  # fmt: skip


def referee():
    """All invariants, in a world of one shard and its child."""
    parent = {"child": "s1"}.get
    return Referee(*usual(Leases(), parent, 50))


@pytest.mark.parametrize("what", SOUND)
def test_sound_sightings_pass(what):
    judge = referee()
    for sighting in SOUND[what]:
        judge(sighting)
    assert judge.violations == []


@pytest.mark.parametrize("what", BROKEN)
def test_a_planted_violation_is_found_at_once_and_named(what):
    invariant, sightings = BROKEN[what]
    judge = referee()
    for sighting in sightings:
        assert judge.violations == []
        judge(sighting)
    (violation,) = [v for v in judge.violations if v.invariant == invariant.__name__.lower()]
    assert violation.at == sightings[-1].call.at
    assert violation.text


def test_every_invariant_has_a_planted_violation():
    names = {type(invariant) for invariant in referee().invariants}
    assert {invariant for invariant, _ in BROKEN.values()} == names


# -- effects and positions ---------------------------------------------------------------------


class Shopping:
    """Writes the sightings of a shop with one shard, as a worker would cause them."""

    def __init__(self):
        apps = {version: make_app(version) for version in (1, 2)}
        self.books = Books({app.fingerprint(): version for version, app in apps.items()})
        generation = {"N": "1"}
        consumer = {
            "_sk_kind": {"S": "consumer"},
            "_sk_generation": generation,
            "_sk_fingerprint": {"S": apps[1].fingerprint()},
        }
        self.see("_sk#shop#label#consumer", consumer, sk="_sk")
        self.sale = {"number": {"N": "3"}, "shop": {"S": "a"}, "amount": {"N": "20"}}
        self.write = self.written("SALE#3", self.sale)

    def written(self, pk, new, *, sk=None, old=None, sequence=5):
        keys = {"PK": {"S": pk}, "SK": {"S": sk or pk}}
        return SeenWrite("s1", sequence, 0.0, keys, old, keys | new)

    def see(self, *args, **more):
        return self.seen(self.written(*args, **more))

    def seen(self, *writes):
        return list(self.books.see(SeenCall("one", 0.0, call("TransactWriteItems"), writes)))

    def effects(self, *, sales=1, digest=None):
        return [
            self.written("SHOP#a", {"sales": {"N": str(sales)}, "revenue": {"N": "20"}}, sk="SALES"),
            self.written("LAST#a", {"seen": {"N": "1"}, "total": {"N": "20"}}),
            self.written("NEWEST#3", {"amount": {"N": "20"}}),
            self.written("TRAIL#3", {"digest": {"N": str(digest or step(0, 20))}}),
        ]  # fmt: skip

    def commit(self):
        (write,) = wrote("one", HELD, ONCE).writes
        return write


def test_effects_that_commit_with_their_position_balance():
    shop = Shopping()
    assert shop.seen(shop.write) == []
    assert shop.seen(shop.commit(), *shop.effects()) == []
    assert shop.books.passed == 1


def test_effects_before_their_position_are_found():
    shop = Shopping()
    shop.seen(shop.write)
    assert len(shop.seen(*shop.effects())) == 6


def test_a_position_before_its_effects_is_found():
    shop = Shopping()
    shop.seen(shop.write)
    assert len(shop.seen(shop.commit())) == 6


def test_an_effect_that_is_applied_twice_is_found():
    shop = Shopping()
    shop.seen(shop.write)
    (text,) = shop.seen(shop.commit(), *shop.effects(sales=2))
    assert text == "SHOP#a has sales = 2, its positions owe 1"


def test_changes_of_an_item_in_the_wrong_order_are_found():
    shop = Shopping()
    edited = shop.sale | {"amount": {"N": "7"}}
    shop.seen(shop.write, shop.written("SALE#3", edited, old=shop.sale, sequence=4))
    wrong = step(step(0, 7), 20)
    found = shop.seen(shop.commit(), *shop.effects(digest=wrong))
    assert [text for text in found if text.startswith("TRAIL#3 has digest")]


# -- where sightings come from -----------------------------------------------------------------


def test_a_world_tells_its_watchers_who_called_and_what_was_written():
    world = World.create(clock=FixedClock())
    create_table(world)
    seen = []
    world.watchers.append(seen.append)
    item = {"PK": {"S": "_sk#x"}, "SK": {"S": "_sk"}, **image(HELD)}
    world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item})
    world.engine.call("dynamodb", "PutItem", {"TableName": TABLE, "Item": item | image(ONCE)})
    first, second = seen
    ((none, created),) = first.cursors()
    ((before, after),) = second.cursors()
    assert none is None
    assert created == before
    assert (before.position, after.position) == (HELD.position, ONCE.position)
    assert second.actor == ""
    assert second.writes[0].is_control
    assert second.writes[0].size > 100


def test_coverage_names_what_was_not_met():
    world = World.create(clock=FixedClock())
    coverage = Coverage(world.engine)
    for sighting in (TAKE, COMMIT, STEAL):
        coverage(sighting)
    assert coverage.counts["take"] == 2
    assert coverage.missing(["take", "commit", "steal", "trim"]) == ["trim"]


class FixedClock:
    def time(self):
        return 1_800_000_000.0

    def monotonic(self):
        return 0.0
