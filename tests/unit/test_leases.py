"""A cursor has one owner at a time, and what an owner says of itself is in the table."""

import random
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from botocore.exceptions import ClientError

from streamkit.aws import connect
from streamkit.changes import Kind
from streamkit.core.handler import Handler
from streamkit.core.parking import Failure, ParkedRecord, park, queue_behind
from streamkit.errors import LeaseLost
from streamkit.fleet.generation import next_generation
from streamkit.fleet.joining import join_generation
from streamkit.local.engine import Engine
from streamkit.local.transport import session_class
from streamkit.model.conditions import absent
from streamkit.model.declaration import Declaration
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import QUEUE
from streamkit.progress.commit import Batch, Committer
from streamkit.progress.control import (
    ControlSpace,
    Cursor,
    child_of,
    cursor_attributes,
    read_cursor,
)
from streamkit.progress.cursor import CursorStore, creation
from streamkit.progress.fold import fold
from streamkit.progress.lease import LeaseWatch
from streamkit.progress.transaction import transact

SCHEMA = TableSchema("shop", "pk", None, "S", None, {})
SPACE = ControlSpace.of(SCHEMA, "app", "label")
TABLE = {
    "TableName": "shop",
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
}


@asynccontextmanager
async def opened(**transport):
    engine = Engine(rng=random.Random(1))
    engine.call("dynamodb", "CreateTable", TABLE)
    async with connect(http_session=session_class(engine, **transport)) as aws:
        store = CursorStore(aws.dynamodb, SPACE)
        await transact(
            aws.dynamodb, {"shop": SCHEMA}, fold(creation(SPACE, Cursor("s"))), random.Random(0)
        )
        yield store


@pytest.fixture
async def store():
    async with opened() as store:
        yield store


# -- take and release ------------------------------------------------------------------------------


async def test_a_cursor_changed_since_it_was_read_is_not_taken(store):
    before = await store.read("s")
    first = await store.take(before, "first", 1)
    with pytest.raises(LeaseLost):
        await store.take(before, "second", 1)
    assert await store.read("s") == first


async def test_each_take_has_an_epoch_of_its_own_also_after_a_release(store):
    epochs = []
    for owner in ("a", "b", "a"):
        taken = await store.take(await store.read("s"), owner, 1)
        epochs.append(taken.epoch)
        await store.release(taken)
    assert epochs == [1, 2, 3]
    assert (await store.read("s")).owner is None


async def test_an_owner_that_gives_its_lease_back_has_not_died_of_a_change(store):
    """Else the next ones run changes one by one, and park one that did no harm."""
    taken = await store.take(await store.read("s"), "a", 1)
    action = SPACE.update("cursor", "s")
    action.sets |= {"trying": {"S": "7"}, "tries": {"N": "2"}}
    suspected = read_cursor(await store.write(action))
    assert (suspected.takes, suspected.trying, suspected.tries) == (1, "7", 2)
    await store.release(taken)
    assert await store.read("s") == replace(suspected, owner=None, takes=0, trying="", tries=0)


async def test_an_owner_that_was_replaced_does_not_release_its_successors_lease(store):
    first = await store.take(await store.read("s"), "first", 1)
    second = await store.take(first, "second", 1)
    await store.release(first)
    assert await store.read("s") == second


async def test_a_roll_out_does_not_take_a_cursor_of_a_newer_one(store):
    taken = await store.take(await store.read("s"), "new", 5)
    await store.release(taken)
    with pytest.raises(LeaseLost):
        await store.take(await store.read("s"), "old", 4)


async def test_a_take_whose_reply_was_lost_is_mine():
    def lose(call, apply):
        response = apply()
        lost.append(response.status)
        return type(response)(500, b'{"__type":"com.amazonaws#InternalServerError"}')

    async def intercept(call, apply):
        taking = call.operation == "UpdateItem" and not lost
        return lose(call, apply) if taking else apply()

    lost = []
    async with opened(intercept=intercept) as store:
        taken = await store.take(await store.read("s"), "me", 1)
        assert (lost, taken.owner, taken.epoch) == ([200], "me", 1)


async def test_a_take_that_meets_a_transaction_on_the_cursor_is_tried_again():
    async def intercept(call, apply):
        if call.operation != "UpdateItem" or met:
            return apply()
        met.append(call)
        kind = b"com.amazonaws.dynamodb.v20120810#TransactionConflictException"
        return type(apply())(400, b'{"__type":"%s","message":""}' % kind)

    met = []
    async with opened(intercept=intercept) as store:
        taken = await store.take(await store.read("s"), "me", 1)
        assert (len(met), taken.owner) == (1, "me")


async def test_a_cursor_that_was_deleted_since_it_was_read_is_not_taken(store):
    before = await store.read("s")
    await store.dynamodb.delete_item(TableName="shop", Key=SPACE.key("cursor", "s"))
    with pytest.raises(LeaseLost):
        await store.take(before, "me", 1)
    assert await store.read("s") is None


async def test_a_cursor_is_created_once(store):
    taken = await store.take(await store.read("s"), "me", 1)
    again = fold(creation(SPACE, Cursor("s")))
    await transact(store.dynamodb, {"shop": SCHEMA}, again, random.Random(0))
    assert await store.read("s") == taken


# -- what a commit says of the cursor --------------------------------------------------------------

MINE = Cursor("s", owner="me", epoch=3, generation=2, position="5".zfill(40), commit="c0")


class Script:
    def __init__(self, *answers):
        self.answers, self.requests = list(answers), []

    async def transact_write_items(self, **request):
        self.requests.append(request)
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer


def committer(table):
    return Committer(table, SPACE, MINE, {"shop": SCHEMA}, random.Random(0))


async def test_the_cursor_names_its_commit_the_handlers_that_are_done_and_its_holds():
    table = Script(None)
    batch = Batch(replace(MINE, done=frozenset({"6:a"}), chunks=frozenset({"s.0"}), seen=9))
    await committer(table).commit(batch)
    update = table.requests[0]["TransactItems"][0]["Update"]
    names = update["ExpressionAttributeNames"]
    values = update["ExpressionAttributeValues"]
    _, _, sets = update["UpdateExpression"].partition("SET ")
    written = {names[n]: values[v] for n, v in (part.split(" = ") for part in sets.split(", "))}
    assert written["_sk_commit"] == {"S": batch.id}
    assert written["_sk_done"] == {"SS": ["6:a"]}
    assert written["_sk_holds"] == {"SS": ["s.0"]}
    assert written["_sk_seen"] == {"N": "9"}


async def test_a_lease_that_was_taken_after_my_commit_won_is_lost_all_the_same():
    batch = Batch(replace(MINE, position="9".zfill(40)))
    there = cursor_attributes(replace(batch.cursor, owner="other", epoch=4, commit=batch.id))
    item = {f"_sk_{name}": value for name, value in there.items()}
    reasons = [{"Code": "ConditionalCheckFailed", "Item": item}]
    response = {
        "Error": {"Code": "TransactionCanceledException"},
        "CancellationReasons": reasons,
    }
    with pytest.raises(LeaseLost):
        await committer(Script(ClientError(response, "TransactWriteItems"))).commit(batch)


def test_a_cursor_is_read_as_it_was_written():
    names = {"done": frozenset({"6:a"}), "chunks": frozenset({"s.0"})}
    cursor = replace(MINE, parent="p", root="p", seen=9, **names)
    assert read_cursor(cursor_attributes(cursor)) == cursor


def test_a_handler_that_joined_is_done_up_to_its_mark_and_the_mark_goes_with_it():
    five, six, seven = (str(number).zfill(40) for number in (5, 6, 7))
    cursor = replace(MINE, joined=frozenset({f"{six}:h", f"{seven}:other"}))
    assert [cursor.is_done("h", at) for at in (five, six, seven)] == [True, True, False]
    assert cursor.joined_after(five) == cursor.joined
    assert cursor.joined_after(six) == {f"{seven}:other"}


def test_a_child_is_live_for_the_builds_of_its_parent_and_dated_by_what_is_known_of_it():
    parent = replace(MINE, live=frozenset({"Likes:1"}), seen=900, dated=800)
    for dated, known in ((800, 900), (0, 0)):
        found = child_of("c", replace(parent, dated=dated), generation=2, parent_name="s")
        assert (found.live, found.seen, found.dated) == (parent.live, 900, known)


# -- parking ---------------------------------------------------------------------------------------


def parked(number):
    failure = Failure("ValueError", "no")
    return ParkedRecord("h", "Thing", "s", str(number).zfill(40), b"record", failure, 7)


def test_a_queue_begins_only_if_there_is_none_and_a_queue_names_what_comes_next():
    queue, *_ = park(SPACE, "lane", parked(1), "s.0")
    assert [(guard.condition, source.effect) for guard, source in queue.guards] == [(absent, QUEUE)]
    move, link, *_ = queue_behind(SPACE, "lane", parked(2), "1".zfill(40), guarded=True)
    assert move.sets["tail"] == link.sets["next"] == {"S": "2".zfill(40)}
    assert [source.effect for _, source in move.guards] == [QUEUE]


# -- heartbeats ------------------------------------------------------------------------------------


def dead(leases, *readings, name="other"):
    """Show readings of a counter, as asked, answered and counter; say after each whether it is dead."""
    said = []
    for asked, answered, beats in readings:
        leases.observe({name: beats}, asked=asked, answered=answered)
        said.append(leases.is_abandoned(name))
    return said


def test_a_worker_is_dead_when_readings_a_lease_apart_show_the_same_counter():
    readings = [(float(now), float(now), beats) for now, beats in
                [(0, 0), (3, 1), (6, 2), (9, 2), (12, 2), (12.9, 2), (13, 2), (14, 3)]]  # fmt: skip
    said = dead(LeaseWatch(7.0), *readings)
    assert said == [False, False, False, False, False, False, True, False]


@pytest.mark.parametrize("times", [1, 4])
def test_in_a_starved_fleet_a_worker_is_dead_after_a_lease_that_is_as_much_longer(times):
    leases = LeaseWatch(7.0, times=times)
    end = 7.0 * times
    assert dead(leases, (0.0, 0.0, 1), (end - 0.1, end, 1), (end, end, 1)) == [False, False, True]


def test_silence_counts_from_an_answer_to_a_question_so_that_slow_readings_make_nobody_look_dead():
    assert dead(LeaseWatch(7.0), (0.0, 3.0, 1), (6.0, 9.0, 1), (9.5, 12.0, 1)) == [
        False,
        False,
        False,
    ]
    assert dead(LeaseWatch(7.0), (0.0, 3.0, 1), (6.0, 9.0, 1), (10.0, 12.0, 1)) == [
        False,
        False,
        True,
    ]


def test_a_worker_that_nobody_has_seen_yet_is_not_dead():
    assert not LeaseWatch(7.0).is_abandoned("unknown")


# -- generations -----------------------------------------------------------------------------------


def aggregate(name, definition="1"):
    return Handler(
        name, object, frozenset(Kind), None, Declaration(name, "f.py", 1),
        commutes=True, is_aggregate=True, definition=definition,
    )  # fmt: skip


def test_what_missed_changes_needs_a_rebuild_until_it_is_gone():
    a, b, other_b = aggregate("a"), aggregate("b"), aggregate("b", "2")
    first = next_generation(None, "f1", [a])
    assert first.rebuild == frozenset()
    second = next_generation(first, "f2", [a, b])
    assert second.rebuild == {"b"}
    third = next_generation(second, "f3", [a, b, aggregate("c")])
    assert third.rebuild == {"b", "c"}
    assert next_generation(third, "f4", [a]).rebuild == frozenset()
    assert next_generation(first, "f5", [a, other_b]).rebuild == {"b"}
    assert next_generation(second, "f6", [a, other_b]).rebuild == {"b"}


async def test_two_roll_outs_at_the_same_moment_start_one_generation_each():
    raced = []

    async def intercept(call, apply):
        if call.operation == "UpdateItem" and b"#consumer" in call.payload and not raced:
            raced.append(call)
            await join_generation(store, "other", [aggregate("b")], take_over=True)
        return apply()

    async with opened(intercept=intercept) as store:
        mine = await join_generation(store, "mine", [aggregate("a")], take_over=True)
    assert mine.number == 2
    assert mine.known == ("other", "mine")
    assert mine.rebuild == {"a"}


async def test_a_left_over_roll_out_stands_by(store):
    for fingerprint in ("old", "new"):
        await join_generation(store, fingerprint, [], take_over=False)
    assert await join_generation(store, "old", [], take_over=False) is None
    assert (await join_generation(store, "new", [], take_over=False)).number == 2
    assert (await join_generation(store, "old", [], take_over=True)).number == 3


async def test_an_older_roll_out_does_not_take_over_what_begins_at_that_moment():
    raced = []

    async def intercept(call, apply):
        if racing and call.operation == "UpdateItem" and not raced:
            raced.append(call)
            await join_generation(store, "newest", [], take_over=False)
        return apply()

    racing = False
    async with opened(intercept=intercept) as store:
        for fingerprint in ("old", "new"):
            await join_generation(store, fingerprint, [], take_over=False)
        racing = True
        assert await join_generation(store, "old", [], take_over=True) is None
        assert (await join_generation(store, "newest", [], take_over=False)).number == 3
        assert (await join_generation(store, "old", [], take_over=True)).number == 4


async def test_cursors_are_in_the_order_of_their_names_whatever_order_a_reply_has(monkeypatch):
    async def items(self, names, *, fresh=True):
        return [cursor_attributes(Cursor(name)) for name in ("b", "c", "a")]

    monkeypatch.setattr(CursorStore, "items", items)
    assert list(await CursorStore(None, SPACE).read_many("cab")) == ["a", "b", "c"]
