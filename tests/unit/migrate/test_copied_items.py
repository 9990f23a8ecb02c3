"""Copies: a repair deletes one without a source only as it was read; none is itself a source."""

from types import SimpleNamespace

import pytest

from streamkit.migrate.run.pairs import Pairs
from streamkit.migrate.run.work import MigrationWork
from streamkit.migrate.sending.calls import DONE, GONE
from streamkit.model.copies import COPY as COPIED
from streamkit.model.copies import FROM
from streamkit.model.origin import ORIGIN
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import render
from streamkit.testing.loop import run_virtually

SCHEMA = TableSchema("Shop", "PK", None, "S", None, {})
COPY = {"PK": {"S": "A"}, "n": {"N": "1"}, "text": {"S": "x"}}


@pytest.mark.parametrize(("outcome", "gone"), [(DONE, True), (GONE, False)])
def test_a_copy_that_was_written_since_it_was_read_stays(outcome, gone):
    sent = []

    async def write(action):
        sent.append(action)
        return outcome

    async def has_place(copy):
        return True

    work = SimpleNamespace(
        migration=SimpleNamespace(moves=True),
        transform=SimpleNamespace(target=SCHEMA),
        families=SimpleNamespace(has_place=has_place),
        calls=SimpleNamespace(write=write),
    )
    key = {"PK": COPY["PK"]}
    assert run_virtually(lambda: MigrationWork.drop(work, key, COPY)) is gone
    (body,) = render(sent[0], SCHEMA).values()
    assert body["Key"] == key
    assert list(body["ExpressionAttributeValues"].values()) == [{"N": "1"}, {"S": "x"}]


def pairs_of(item):
    """Return the pairs of an item that is in the table, and what they send."""
    sent = []

    async def get(table, key):
        return item

    async def transact(actions):
        sent.append(actions)
        return DONE

    def of(plain):
        made = SimpleNamespace(key={"PK": {"S": "B"}}, item={"PK": {"S": "B"}})
        return SimpleNamespace(targets=[made], reads={"n"})

    transform = SimpleNamespace(
        schema=SCHEMA,
        target=SCHEMA,
        of=of,
        migration=SimpleNamespace(id="0003", owner=None, mode="derive", conflict="report"),
    )
    calls = SimpleNamespace(get=get, transact=transact)
    return Pairs(transform, calls, SimpleNamespace(writer="shop.0003")), sent


def test_a_copy_of_a_migration_is_the_source_of_nothing():
    copied = {**COPY, COPIED: {"S": "x"}}
    pairs, sent = pairs_of(copied)
    assert run_virtually(lambda: pairs._attempt({"PK": COPY["PK"]}, None, None)) is None
    assert not sent
    pairs, sent = pairs_of(copied)  # it has become one since the pass read it
    assert run_virtually(lambda: pairs._attempt({"PK": COPY["PK"]}, None, COPY)) is DONE
    (guard, _), *_ = sent
    (body,) = render(guard, SCHEMA).values()
    places = {name: place for place, name in body["ExpressionAttributeNames"].items()}
    assert f"attribute_not_exists({places[COPIED]})" in body["ConditionExpression"]
    assert f"{places['n']} = " in body["ConditionExpression"]


@pytest.mark.parametrize(("whose", "goes"), [("0003:a", True), ("0003:b", False), ("", False)])
def test_a_target_that_is_stale_goes_only_as_the_migration_has_left_it(whose, goes):
    mark, origin = (FROM, {"S": "0003:a"}), {"S": "written last"}
    there = {"PK": {"S": "B"}, FROM: {"S": whose}, ORIGIN: origin}
    pairs, _ = pairs_of(there if whose else None)
    target = SimpleNamespace(key={"PK": there["PK"]})
    actions = run_virtually(lambda: pairs._remove(target, mark))
    assert len(actions) == goes
    for action in actions:
        (body,) = render(action, SCHEMA).values()
        assert body["Key"] == {"PK": there["PK"]}
        assert [*body["ExpressionAttributeValues"].values()] == [mark[1], origin]
