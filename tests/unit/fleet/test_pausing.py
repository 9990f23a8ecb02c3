"""Pausing: what people pause stays as it is until they resume it, and nothing else changes."""

import random
from dataclasses import replace
from functools import partial

import pytest

from streamkit.aws import connect
from streamkit.errors import ConfigurationError
from streamkit.fleet.generation import newest_generation, stepped, write_generation
from streamkit.fleet.hosting import DELETING, LAMBDA, WORKERS, look
from streamkit.fleet.joining import join_generation
from streamkit.fleet.members import Attendance, Member, MemberList
from streamkit.fleet.pausing import set_held, set_paused
from streamkit.local.engine import Engine
from streamkit.local.transport import session_class
from streamkit.model.builds import Build
from streamkit.model.schema import TableSchema
from streamkit.progress.control import ControlSpace
from streamkit.progress.cursor import CursorStore
from streamkit.progress.operation import AuditEntry

SAID = AuditEntry(1, "ann", "paused or resumed")


@pytest.fixture(params=[("pk", "sk"), ("pk",)], ids=["sort key", "simple key"])
async def store(request):
    names, types = request.param, ("HASH", "RANGE")
    engine = Engine(rng=random.Random(1))
    table = {
        "TableName": "shop",
        "KeySchema": [
            {"AttributeName": n, "KeyType": t} for n, t in zip(names, types, strict=False)
        ],
        "AttributeDefinitions": [{"AttributeName": n, "AttributeType": "S"} for n in names],
        "BillingMode": "PAY_PER_REQUEST",
    }
    engine.call("dynamodb", "CreateTable", table)
    sk = names[1] if len(names) > 1 else None
    schema = TableSchema("shop", "pk", sk, "S", sk and "S", {})
    async with connect(http_session=session_class(engine)) as aws:
        yield CursorStore(aws.dynamodb, ControlSpace.of(schema, "app", "label"))


async def shown(store):
    """Return since when a consumer is paused, as workers and people see it, and functions."""
    return (await MemberList(store).look()).paused, (await look(store)).paused


async def test_a_consumer_is_paused_since_the_first_of_two_pauses(store):
    await join_generation(store, "handlers", (), take_over=False)
    await MemberList(store).add(Member("me"))
    for since in (100, 200):
        await set_paused(store, since, SAID)
        assert await shown(store) == (100, 100)
    await set_paused(store, 0, SAID)
    assert await shown(store) == (0, 0)
    await set_paused(store, 300, SAID)
    assert await shown(store) == (300, 300)
    assert (await MemberList(store).read()).keys() == {"me"}


@pytest.mark.parametrize(
    "command",
    [partial(set_paused, since=100), partial(set_held, operation="move", paused=True)],
    ids=["pause", "hold"],
)
async def test_a_consumer_that_is_being_deleted_is_not_paused(store, command):
    newest = await join_generation(store, "handlers", (), take_over=False)
    await write_generation(store, newest, replace(newest, host=DELETING))
    with pytest.raises(ConfigurationError, match="delete"):
        await command(store, said=SAID)
    assert await shown(store) == (0, 0)


@pytest.mark.parametrize("host", ["", LAMBDA])
async def test_who_pauses_a_consumer_is_told_which_host_runs_it(store, host):
    newest = await join_generation(store, "handlers", (), take_over=False)
    await write_generation(store, newest, replace(newest, host=host))
    assert await set_paused(store, 100, SAID) == (host or WORKERS)


async def rebuilding(store, **builds):
    """Begin builds, or let them go on."""
    newest = await newest_generation(store)
    await write_generation(store, newest, stepped(newest, builds))


async def test_an_operation_that_is_paused_or_resumed_leaves_the_others_as_they_are(store):
    await join_generation(store, "handlers", (), take_over=False)
    await rebuilding(store, Sales=Build(2, "scanning"), Visits=Build(2, "scanning"))
    for name in ("rebuild Sales", "rebuild Visits"):
        both = await set_held(store, name, SAID, paused=True)
    assert both.is_held("rebuild Sales")
    assert both.is_held("rebuild Visits")
    one = await set_held(store, "rebuild Visits", SAID, paused=False)
    assert one.is_held("rebuild Sales")
    assert not one.is_held("rebuild Visits")


async def test_a_pause_of_an_operation_that_is_over_is_forgotten_with_the_next_command(store):
    """Otherwise the consumer's item would grow with each operation that is paused."""
    await join_generation(store, "handlers", (), take_over=False)
    await rebuilding(store, Sales=Build(2, "scanning"), Visits=Build(2, "scanning"))
    await set_held(store, "rebuild Sales", SAID, paused=True)
    await rebuilding(store, Sales=Build(3, "scanning"), Visits=Build(2, "scanning"))
    after = await set_held(store, "rebuild Visits", SAID, paused=True)
    assert len(after.held) == 1


def test_a_pause_is_news_although_no_member_has_changed():
    members = {"me": Member("me")}
    assert not Attendance(members).is_like(Attendance(members, paused=100))
    assert Attendance(members).is_like(Attendance(members))
