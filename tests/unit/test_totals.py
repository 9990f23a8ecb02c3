"""Changes that only add up become blocks, which come to what the changes do one by one."""

import random
from decimal import Context, Decimal
from typing import Annotated

import msgspec
import pytest

from streamkit import (
    Aggregate,
    App,
    Avg,
    Change,
    Count,
    Distinct,
    Entity,
    Inserted,
    Key,
    Modified,
    Put,
    Sum,
    absent,
)
from streamkit.core.dispatch import Dispatcher
from streamkit.core.draft import CLAUSES_MAX
from streamkit.core.handler import as_registered
from streamkit.core.tables import Tables
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import ITEMS_MAX, Verb
from streamkit.stream.decode import parse_page
from streamkit.testing.loop import VirtualClock, run_virtually
from tests.seeds import seeds

EXACT = Context(prec=500)
SCHEMA = TableSchema("shop", "PK", "SK", "S", "S", {})


class Sale(Entity, pk="SALE#{number}", sk="SALE"):
    number: int
    shop: str
    day: int | None = None
    price: Decimal = Decimal(0)
    pieces: int = 0
    buyer: str | None = None


class Till(Aggregate[Sale], pk="TILL#{shop}", sk="DAY#{day}"):
    shop: str
    day: int
    sales: Annotated[int, Count()] = 0
    large: Annotated[int, Count(when=lambda sale: sale.pieces > 3)] = 0
    revenue: Annotated[Decimal, Sum("price")] = Decimal(0)
    pieces: Annotated[int, Sum("pieces")] = 0
    worth: Annotated[Decimal, Sum(lambda sale: sale.price * sale.pieces)] = Decimal(0)
    mean: Annotated[Decimal | None, Avg("price")] = None
    buyers: Annotated[int, Distinct("buyer")] = 0


class Stock(Aggregate[Sale], pk="STOCK#{shop}", sk="DAY#{day}"):
    """Needs no other fields than those that it names."""

    shop: str
    day: int
    sales: Annotated[int, Count()] = 0
    pieces: Annotated[int, Sum("pieces")] = 0
    revenue: Annotated[Decimal, Sum("price")] = Decimal(0)
    mean: Annotated[Decimal | None, Avg("price")] = None
    buyers: Annotated[int, Distinct("buyer")] = 0


class Visits(Aggregate[Sale], pk="VISITS#{shop}", sk="VISITS"):
    shop: str
    visits: Annotated[int, Count()] = 0


class Large(Aggregate[Sale], pk="LARGE#{shop}", sk="LARGE"):
    shop: str
    sales: Annotated[int, Count(when=lambda sale: sale.pieces > 3)] = 0


class Shelf(Aggregate[Sale], pk="SHELF#{name}", sk="SHELF"):
    name: str
    sales: Annotated[int, Count()] = 0
    pieces: Annotated[int, Sum("pieces")] = 0

    @classmethod
    def group(cls, sale: Sale) -> list[Key["Shelf"]]:
        if sale.pieces == 13:
            raise ValueError("nobody buys thirteen")
        return [cls.key(name=f"{sale.shop}-{n}") for n in range(sale.pieces % 4)]


class Note(Entity, pk="NOTE#{name}", sk="NOTE"):
    name: int
    pieces: int


class Label(Entity, pk="LABEL#{number}", sk="LABEL"):
    number: int
    shop: str


def app_of(*kinds, listener=False, writers=False):
    app = App("shop", table="shop", entities=[Sale, Note, Label])
    for kind in kinds:
        app.aggregate(kind)
    if listener:

        @app.on
        async def listen(change: Modified[Sale]) -> None:
            pass

    if writers:

        @app.on
        def note(change: Modified[Sale]) -> Put[Note] | None:
            if change.new.pieces == 5:
                raise ValueError("five is wrong")
            if change.new.pieces == 0:
                return None
            put = Put(Note(name=change.new.number % 3, pieces=change.new.pieces))
            return put.only_if(absent) if change.new.pieces == 2 else put

        @app.on
        def label(change: Inserted[Sale] | Modified[Sale]) -> Put[Label]:
            return Put(Label(number=change.new.number, shop=change.new.shop))

    return app


def image(chance, number):
    made = {
        "PK": {"S": f"SALE#{number}"},
        "SK": {"S": "SALE"},
        "number": {"N": str(number)},
        "shop": {"S": chance.choice("abc")},
        "pieces": {"N": chance.choice(["0", "1", "2", "3", "5", "-7"])},
        "price": {"N": chance.choice(["0", "1.50", "-2", "1E+20", "0.01"])},
    }
    if chance.random() < 0.8:
        made["day"] = {"N": str(chance.randrange(3))}
    if chance.random() < 0.5:
        made["buyer"] = {"S": chance.choice("xyz")}
    if chance.random() < 0.05:
        made["pieces"] = {"N": chance.choice(["13", "9" * 38, "-" + "9" * 38])}
    if chance.random() < 0.05:
        made["price"] = {"N": "9" * 37}
    if chance.random() < 0.03:
        made["pieces"] = {"S": "many"}  # does not fit the entity
    if chance.random() < 0.03:
        made["shop"] = {"S": ""}  # no key can be built of it
    return made


def page_of(chance, count):
    records = []
    for position in range(1, count + 1):
        number = chance.randrange(5)
        kind = chance.choice(["INSERT", "MODIFY", "MODIFY", "MODIFY", "REMOVE"])
        images = {}
        if kind != "REMOVE":
            images["NewImage"] = image(chance, number)
        if kind != "INSERT":
            images["OldImage"] = image(chance, number)
        if kind == "MODIFY" and chance.random() < 0.7:  # within its group
            old, new = images["OldImage"], images["NewImage"]
            images["NewImage"] = new | {name: old[name] for name in ("shop", "day") if name in old}
        inner = {
            "Keys": {"PK": {"S": f"SALE#{number}"}, "SK": {"S": "SALE"}},
            "SequenceNumber": f"{position:021}",
            "ApproximateCreationDateTime": 1_700_000_000,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
            "SizeBytes": 1,
            **images,
        }
        records.append({"eventName": kind, "eventID": str(position), "dynamodb": inner})
    return parse_page(msgspec.json.encode({"Records": records}))


def dispatcher_of(app):
    routes, chance = app.routes(Tables(SCHEMA)), random.Random(1)
    return Dispatcher(app.handlers, routes, lambda *_: {}, VirtualClock(), chance)


def dispatched(app, page, *, blocks, as_run=as_registered):
    """Return the pending changes of a page, the same with blocks taken apart, and the counts."""

    async def run():
        dispatcher = dispatcher_of(app)
        pending, _, _ = await dispatcher.dispatch(page, "shard", as_run, blocks=blocks)
        return pending, dispatcher.apart(pending, "shard"), dispatcher.counts

    return run_virtually(run)


def meaning(pending):
    """Return what pending changes write to each item, and which of them are parked.

    Sums are those of the end; whole items are written in turn.
    """
    adds, sets, written, parked = {}, {}, {}, []
    for change in pending:
        for outcome in change.outcomes:
            if outcome.parks:
                parked.append((change.position, outcome.handler.name, outcome.failure.kind))
            for ref, action in outcome.actions.items():
                assert not any([action.removes, action.unions, action.subtractions])
                if action.verb is Verb.PUT:
                    guards = [source for _, source in action.guards]
                    written.setdefault(ref, []).append((action.item, guards))
                    continue
                assert action.verb is Verb.UPDATE
                assert not action.guards
                sets.setdefault(ref, {}).update(action.sets)
                sums = adds.setdefault(ref, {})
                for name, amount in action.adds.items():
                    sums[name] = EXACT.add(sums.get(name, Decimal(0)), amount)
    return adds, sets, parked, written


APPS = [(Till,), (Shelf,), (Till, Shelf), (Stock,), (Stock, Visits), (Stock, Till)]


@pytest.mark.parametrize("seed", seeds(least=12))
@pytest.mark.parametrize("kinds", APPS, ids=lambda kinds: "+".join(k.__name__ for k in kinds))
def test_a_block_comes_to_what_its_changes_do_one_by_one(kinds, seed):
    page = page_of(random.Random(seed), 60)
    singly, _, one = dispatched(app_of(*kinds), page, blocks=False)
    together, _, other = dispatched(app_of(*kinds), page, blocks=True)
    assert meaning(together) == meaning(singly)
    assert (one.changes, one.failures) == (other.changes, other.failures)


@pytest.mark.parametrize("blocks", [False, True])
def test_a_change_counts_whatever_fields_do_not_fit_that_its_aggregate_does_not_name(blocks):
    page = page_of(random.Random(7), 200)
    _, _, named = dispatched(app_of(Stock), page, blocks=blocks)
    works, apart, alone = dispatched(app_of(Visits), page, blocks=blocks)
    assert named.failures > alone.failures
    assert {kind for *_, kind in meaning(apart)[2]} == {"ValueError"}  # of an empty shop
    assert any(work.block for work in works) is blocks


@pytest.mark.parametrize("kind", [Large, Till, Shelf])
def test_the_applications_own_code_gets_whole_items(kind):
    page = page_of(random.Random(7), 200)
    works, _, _ = dispatched(app_of(kind), page, blocks=True)
    assert "AttributeError" not in {kind for *_, kind in meaning(works)[2]}


def test_most_changes_are_in_blocks():
    pages = [page_of(random.Random(seed), 60) for seed in range(20)]
    pending = [w for page in pages for w in dispatched(app_of(Till), page, blocks=True)[0]]
    assert sum(len(change.block) for change in pending) > 400
    assert len(pending) < 1_000


@pytest.mark.parametrize("seed", seeds(least=4))
def test_a_block_that_is_taken_apart_is_its_changes(seed):
    page = page_of(random.Random(seed), 60)
    singly, _, _ = dispatched(app_of(Till, Shelf), page, blocks=False)
    _, apart, _ = dispatched(app_of(Till, Shelf), page, blocks=True)
    assert [w.position for w in apart] == [w.position for w in singly]
    assert meaning(apart) == meaning(singly)


def test_a_block_is_at_its_last_change_and_ends_before_one_that_goes_its_own_way():
    page = page_of(random.Random(3), 60)
    pending, _, _ = dispatched(app_of(Till, Shelf), page, blocks=True)
    positions = [change.position for change in pending]
    assert positions == sorted(positions)
    for change in pending:
        if change.block:
            assert change.position == change.block[-1][0].position
            assert change.dated == change.block[-1][0].created_at
            assert [outcome.times for outcome in change.outcomes] == [len(change.block)] * 2


def test_changes_that_another_handler_listens_to_go_their_own_way():
    page = page_of(random.Random(4), 60)
    pending, _, _ = dispatched(app_of(Till, listener=True), page, blocks=True)
    assert all(record.kind.name != "MODIFIED" for change in pending for record, _ in change.block)
    assert any(change.block for change in pending)


@pytest.mark.parametrize("seed", seeds(least=12))
@pytest.mark.parametrize("kinds", [(Till,), (Till, Shelf)], ids=["Till", "Till+Shelf"])
def test_a_block_writes_each_item_in_the_order_of_its_changes(kinds, seed):
    page = page_of(random.Random(seed), 60)
    singly, _, one = dispatched(app_of(*kinds, writers=True), page, blocks=False)
    together, apart, other = dispatched(app_of(*kinds, writers=True), page, blocks=True)
    assert meaning(together) == meaning(singly) == meaning(apart)
    assert one.changes == other.changes
    mixed = [change for change in together if change.block and len(change.outcomes) > 2]
    for change in mixed:
        refs = [ref for outcome in change.outcomes for ref in outcome.actions]
        assert len(set(refs)) == len(refs), "in a block nothing says what comes first"
        assert not any(a.guards for outcome in change.outcomes for a in outcome.actions.values())
        names = [outcome.handler.name for outcome in change.outcomes]
        assert len(set(names)) == len(names)
    assert any(len(change.block) > 2 for change in mixed)


def test_writers_alone_make_no_blocks_which_would_fill_fewer_commits():
    page = page_of(random.Random(4), 60)
    pending, _, _ = dispatched(app_of(writers=True), page, blocks=True)
    assert not any(change.block for change in pending)


def test_what_is_written_to_a_group_stays_between_the_sums_before_and_after_it():
    app = App("shop", table="shop", entities=[Sale, Till])
    app.aggregate(Till)

    @app.on
    def begin(change: Change[Sale]) -> Put[Till] | None:
        new = change.new
        if new is None or new.day is None or new.pieces != 3:
            return None
        return Put(Till(shop=new.shop, day=new.day))

    found = 0
    for seed in range(20):
        page = page_of(random.Random(seed), 60)
        pending, _, _ = dispatched(app, page, blocks=True)
        for change in pending:
            refs = [ref for outcome in change.outcomes for ref in outcome.actions]
            if change.block:
                assert len(set(refs)) == len(refs)
            else:
                found += len(set(refs)) < len(refs)
    assert found > 5


def test_large_items_end_a_block_before_it_is_too_large_for_a_commit():
    app = App("shop", table="shop", entities=[Sale, Label])
    app.aggregate(Visits)

    @app.on
    def label(change: Inserted[Sale]) -> Put[Label]:
        return Put(Label(number=int(change.sequence_number), shop="x" * 300_000))

    inner = {
        "Keys": {"PK": {"S": "SALE#1"}, "SK": {"S": "SALE"}},
        "ApproximateCreationDateTime": 1_700_000_000,
        "NewImage": image(random.Random(1), 1),
    }
    records = [
        {"eventName": "INSERT", "dynamodb": inner | {"SequenceNumber": f"{n:021}"}}
        for n in range(1, 11)
    ]
    page = parse_page(msgspec.json.encode({"Records": records}))
    pending, _, _ = dispatched(app, page, blocks=True)
    assert [len(change.block) for change in pending] == [5, 5]


@pytest.mark.parametrize("labels", [1, 2, 10, 40, 90])
def test_a_block_of_written_items_fills_a_commit_and_is_never_larger(labels):
    app = App("shop", table="shop", entities=[Sale, Label])
    app.aggregate(Till)

    @app.on
    def label(change: Inserted[Sale]) -> list[Put[Label]]:
        first = int(change.sequence_number) * labels
        return [Put(Label(number=first + n, shop="x")) for n in range(labels)]

    records = []
    for n in range(1, 301):
        inner = {
            "Keys": {"PK": {"S": f"SALE#{n}"}, "SK": {"S": "SALE"}},
            "ApproximateCreationDateTime": 1_700_000_000,
            "SequenceNumber": f"{n:021}",
            "NewImage": image(random.Random(1), n)
            | {"shop": {"S": "a"}, "day": {"N": str(n % 20)}},
        }
        records.append({"eventName": "INSERT", "dynamodb": inner})
    page = parse_page(msgspec.json.encode({"Records": records}))
    pending, _, _ = dispatched(app, page, blocks=True)
    written = [len({ref for one in change.outcomes for ref in one.actions}) for change in pending]
    assert max(written) <= ITEMS_MAX
    assert all(items > ITEMS_MAX - 5 - labels for items in written[:-1])


def test_a_block_changes_no_more_attributes_of_a_group_than_one_update_can_name():
    records = []
    for n in range(1, 1_001):  # each has a buyer of its own, whom `Distinct` counts apart
        inner = {
            "Keys": {"PK": {"S": f"SALE#{n}"}, "SK": {"S": "SALE"}},
            "ApproximateCreationDateTime": 1_700_000_000,
            "SequenceNumber": f"{n:021}",
            "NewImage": image(random.Random(1), n)
            | {"shop": {"S": "a"}, "day": {"N": "1"}, "buyer": {"S": str(n)}},
        }
        records.append({"eventName": "INSERT", "dynamodb": inner})
    page = parse_page(msgspec.json.encode({"Records": records}))
    singly, _, _ = dispatched(app_of(Stock), page, blocks=False)
    together, _, _ = dispatched(app_of(Stock), page, blocks=True)
    assert meaning(together) == meaning(singly)
    clauses = [a.clauses for c in together for o in c.outcomes for a in o.actions.values()]
    assert max(clauses) < CLAUSES_MAX + 10
    assert len(clauses) == 5


def test_a_shadow_handler_beside_an_aggregate_has_a_result_for_each_change():
    app = app_of(Stock)

    @app.on(shadow=True)
    def label(change: Change[Sale]) -> Put[Label]:
        sale = change.new or change.old
        return Put(Label(number=sale.number, shop=sale.shop))

    def results(*, blocks):
        pending, _, counts = dispatched(app, page_of(random.Random(5), 60), blocks=blocks)
        trials = [o.trial for change in pending for o in change.outcomes if o.trial]
        return len(trials), counts.shadow["label"].runs

    singly = results(blocks=False)
    assert results(blocks=True) == singly
    assert singly[0] > 50


def test_a_build_that_is_under_way_is_asked_at_each_change():
    page = page_of(random.Random(5), 60)
    pending, _, _ = dispatched(app_of(Till), page, blocks=True, as_run=lambda *_: None)
    assert pending == []


def test_sums_that_no_number_holds_are_found_at_their_change():
    chance = random.Random(6)
    page = page_of(chance, 400)
    singly, _, _ = dispatched(app_of(Till), page, blocks=False)
    together, _, _ = dispatched(app_of(Till), page, blocks=True)
    assert meaning(together)[2] == meaning(singly)[2]
    assert {kind for _, _, kind in meaning(singly)[2]} >= {"DecodeError", "ValueError"}
