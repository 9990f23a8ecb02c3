"""One item of a pass, and one that is tried again: what is done with it, and when nothing is."""

from types import SimpleNamespace
from typing import ClassVar

import pytest

from streamkit import App, Entity, Index, TableShape
from streamkit.core.table_shape import entities_of
from streamkit.core.tables import survey
from streamkit.migrate.book.tallies import Tally
from streamkit.migrate.items.marks import mark_of
from streamkit.migrate.run.pairs import Pairs
from streamkit.migrate.run.work import TOUCH, MigrationWork
from streamkit.migrate.sending.attempts import Undecided
from streamkit.migrate.sending.calls import DONE, Calls
from streamkit.migrate.sending.rate import Rate
from streamkit.model.copies import COPY, FROM
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import Verb
from streamkit.progress.transaction import ACTIONS_MAX
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import World

RUN = "migrate.0001.2"


class Order(Entity, pk="C#{user}", sk="ORDER#{order}", type="order"):
    by_state: ClassVar = Index("ByState", pk="{state}", sk="{user}")
    user: str
    order: str
    state: str = "NEW"


ORDER = Order(user="ann", order="1")
SCHEMA = TableSchema("Shop", "PK", None, "S", None, {})
KEY = {"PK": {"S": "A"}}


# -- an item that an index shows -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "touched"),
    [
        (None, False),  # it was deleted since, and must not come back as a mark without an item
        ({}, True),
        ({TOUCH: {"S": "migrate.0001.1"}}, True),  # by a former run
        (
            {TOUCH: {"S": RUN}},
            False,
        ),  # by another process, or by this one before its reply was lost
        ({"kind": {"S": "invoice"}}, False),
        ({"kind": None}, True),
    ],
)
def test_an_item_is_touched_once_if_it_is_there_and_may_be_of_the_entity(there, touched):
    async def touch():
        world = World.create(1)
        app = App("shop", table="Shop", entities=[Order], type_attribute="kind")
        async with world.clients() as aws:
            await TableShape().create(aws.dynamodb, "Shop", entities_of(app))
            schema = (await survey(app, aws)).table
            if there is not None:
                item = ORDER.attributes(schema) | there
                item = {name: value for name, value in item.items() if value is not None}
                await aws.dynamodb.put_item(TableName="Shop", Item=item)
            work = SimpleNamespace(
                schema=schema,
                state=SimpleNamespace(consumer=RUN),
                migration=SimpleNamespace(entity=Order),
                failed=SimpleNamespace(writer="shop.0001"),
                calls=Calls(aws.dynamodb, Rate(world.clock), [schema]),
            )
            shown = ORDER.item_key.wire(schema)
            tally = await MigrationWork._touch(work, shown, blind=True)
        marks = [item.get(TOUCH) for item in world.items("Shop")]
        return marks, (tally.changed, tally.skipped)

    before = [] if there is None else [there.get(TOUCH)]
    expected = ([{"S": RUN}], (1, 0)) if touched else (before, (0, 1))
    assert run_virtually(touch) == expected


def touching(of):
    """Touch an item that is read whole; return the tally, and what is written down as an error."""
    noted = []

    async def note(key, kind, error):
        noted.append((kind, str(error)))
        return Tally(errors=1)

    async def write(action):
        return DONE

    work = SimpleNamespace(
        schema=SCHEMA,
        state=SimpleNamespace(consumer=RUN),
        failed=SimpleNamespace(writer="shop.0001", note=note),
        calls=SimpleNamespace(write=write),
        transform=SimpleNamespace(of=of),
    )
    return run_virtually(lambda: MigrationWork._touch(work, KEY, blind=False)), noted


def test_an_item_that_the_function_refuses_is_written_down_before_the_stream_reports_it():
    def of(item):
        raise ValueError("no such state")

    assert touching(of) == (Tally(errors=1), [("transform", "no such state")])


@pytest.mark.parametrize("changes", [True, False])
@pytest.mark.parametrize("targets", [["made"], []])
def test_an_item_is_touched_if_it_or_what_follows_from_it_changes(changes, targets):
    rewrite = SimpleNamespace(changes_item=changes, targets=targets)
    touched = changes or bool(targets)
    assert touching(lambda item: rewrite) == (Tally(changed=touched, skipped=not touched), [])


# -- an item that is tried again -------------------------------------------------------------------


def retried(item, *, is_pairs=False, matches=True, kind="invalid", fails=False):
    """Try an item again; return what is done with it, and what is left of its error."""
    done = []

    async def get(table, key):
        return item

    def noting(name):
        async def note(one, **more):
            done.append((name, one))
            return Tally(errors=int(fails))

        return note

    async def opened():
        return list(errors)

    async def remove(error):
        errors.remove(error)

    async def again(key):
        return await MigrationWork.retry(work, key)

    errors = [SimpleNamespace(key={"PK": {"S": "A"}}, kind=kind)]
    work = SimpleNamespace(
        migration=SimpleNamespace(moves=False, is_pairs=is_pairs),
        schema=SimpleNamespace(name="Shop"),
        calls=SimpleNamespace(get=get),
        transform=SimpleNamespace(matches=lambda item: matches),
        pairs=SimpleNamespace(forward=noting("pairs")),
        in_place=SimpleNamespace(reconcile=noting("in place")),
        _check=noting("check"),
        _book=SimpleNamespace(open=opened, remove=remove),
        retry=again,
    )
    left = run_virtually(lambda: MigrationWork.failing(work))
    return [name for name, _ in done], left


ITEM = {"PK": {"S": "A"}}


@pytest.mark.parametrize(
    ("item", "given", "does"),
    [
        (ITEM, {}, ["in place", "check"]),
        (ITEM, {"matches": False}, []),
        (None, {}, []),
        (ITEM, {"is_pairs": True}, ["pairs"]),
        (ITEM, {"is_pairs": True, "matches": False}, []),
        (None, {"is_pairs": True}, ["pairs"]),  # what followed from it may be there still
    ],
)
def test_what_is_tried_again_is_the_item_as_it_is_now_unless_it_is_another_entitys(
    item, given, does
):
    assert retried(item, **given) == (does, 0)


def test_an_item_that_fails_again_or_is_right_only_for_a_moment_stays_an_error():
    assert retried(ITEM, fails=True)[1] == 1
    assert retried(ITEM, kind="ping_pong") == ([], 1)


# -- items that follow from an item ----------------------------------------------------------------

MIGRATION = SimpleNamespace(id="0003", owner=None, mode="derive", conflict="report")
_, MARK = mark_of(MIGRATION, SCHEMA, KEY)


def source(*names, **fields):
    """Return an item from which others follow, as it is read."""
    return {**KEY, "names": {"SS": list(names)}, **fields}


def following(old, now, *, matches=True):
    """Bring what follows from an item in step with it; return what is sent, by verb and key.

    `old` is its image before the change, `now` the item. What followed from both is there.
    """
    sent = []

    async def get(table, key):
        return now if key == KEY else {**key, FROM: MARK}

    async def transact(actions):
        assert all(action.guards for action in actions), "each action has a condition"
        sent.extend(actions)
        return DONE

    def of(item):
        if "unfit" in item:
            raise ValueError("no such item")
        keys = [{"PK": {"S": name}} for name in sorted(item["names"])]
        targets = [SimpleNamespace(key=key, item={**key, "new": {"N": "1"}}) for key in keys]
        return SimpleNamespace(targets=targets, reads={"names"})

    transform = SimpleNamespace(
        schema=SCHEMA, target=SCHEMA, of=of, migration=MIGRATION, matches=lambda item: matches
    )
    calls = SimpleNamespace(get=get, transact=transact)
    pairs = Pairs(transform, calls, SimpleNamespace(writer="shop.0003"))
    run_virtually(lambda: pairs._attempt(KEY, old, None))
    return [(action.verb, action.ref.pk[1]) for action in sent]


def test_what_followed_from_an_image_and_does_not_follow_now_goes():
    sent = following(source("B", "C"), source("C"))
    assert sent == [(Verb.CHECK, "A"), (Verb.PUT, "C"), (Verb.DELETE, "B")]


def test_what_followed_from_an_item_that_is_gone_goes_while_the_item_is_not_there():
    assert following(source("B"), None) == [(Verb.CHECK, "A"), (Verb.DELETE, "B")]


@pytest.mark.parametrize(
    ("old", "matches"),
    [
        (None, True),
        (source("B"), False),  # it was another entity's
        (source("B", **{COPY: {"S": "x"}}), True),
        (source("B", unfit={"BOOL": True}), True),
    ],
)
def test_an_image_from_which_nothing_followed_lets_nothing_go(old, matches):
    assert following(old, None, matches=matches) == []


def test_an_item_with_as_many_others_as_a_transaction_holds_beside_it_is_brought():
    most = [f"B{n}" for n in range(ACTIONS_MAX - 1)]
    assert len(following(None, source(*most))) == ACTIONS_MAX
    with pytest.raises(Undecided, match="more than 99 items"):
        following(None, source(*most, "C"))


def test_what_a_migration_of_a_longer_number_has_made_is_not_dropped():
    made = {**KEY, FROM: {"S": "00031:A"}}
    transform = SimpleNamespace(migration=MIGRATION, target=SCHEMA)
    assert run_virtually(lambda: Pairs(transform, None, None).drop(made)) == Tally()
