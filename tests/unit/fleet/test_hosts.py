"""Who runs a consumer, why one could not begin, and where one begins that has not begun yet."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from streamkit.aws import connect
from streamkit.errors import ConfigurationError
from streamkit.fleet.directory import (
    ConsumerEntry,
    directory_of,
    enter,
    entries,
    halts,
    leave,
    note_halt,
    predecessors,
)
from streamkit.fleet.founding import Founding, Origin
from streamkit.fleet.generation import newest_generation, write_generation
from streamkit.fleet.hosting import (
    DELETING,
    ENDED,
    JOINED,
    LAMBDA,
    TAKEN,
    TAKING_OVER,
    TO_LAMBDA,
    WORKERS,
    check_host,
    claim,
    look,
    set_host,
)
from streamkit.fleet.joining import join_generation
from streamkit.local.engine import Engine
from streamkit.local.transport import session_class
from streamkit.progress.control import ControlSpace
from streamkit.progress.cursor import CursorStore
from streamkit.stream.start import REACH_SECONDS
from tests.unit.fleet.test_gaps import SCHEMA, TABLE

CREATED = datetime(2026, 3, 1, 12, tzinfo=UTC)
LABEL = "2026-03-01T12:00:00.000"
NOW = int((CREATED + timedelta(days=30)).timestamp())
DAY = 86_400


@pytest.fixture
async def store():
    engine = Engine(rng=random.Random(1))
    engine.call("dynamodb", "CreateTable", TABLE)
    async with connect(http_session=session_class(engine)) as aws:
        yield CursorStore(aws.dynamodb, ControlSpace.of(SCHEMA, "app", LABEL))


def of_stream(store, label):
    return CursorStore(store.dynamodb, replace(store.space, label=label))


# -- hosts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("there", "wanted", "allowed"),
    [
        *((there, "", True) for there in (WORKERS, LAMBDA, DELETING, JOINED)),
        ("", WORKERS, True),
        ("", LAMBDA, True),
        (LAMBDA, LAMBDA, True),
        (LAMBDA, WORKERS, False),
        (WORKERS, LAMBDA, False),
        (TO_LAMBDA, WORKERS, False),
        (JOINED, WORKERS, False),
        *((there, WORKERS, True) for there in (TAKING_OVER, TAKEN)),
        *((there, LAMBDA, False) for there in (TAKING_OVER, TAKEN)),
    ],
)
def test_one_host_runs_a_consumer(there, wanted, allowed):
    if allowed:
        check_host("app", there, wanted)
    else:
        with pytest.raises(ConfigurationError, match=r"^consumer app: "):
            check_host("app", there, wanted)


async def test_who_claims_a_consumer_first_is_its_host_and_knows_that(store):
    await join_generation(store, "new", (), take_over=False)
    first = (await look(store)).host or WORKERS
    assert (await claim(store, first)).host == first
    assert (await claim(store, first)).host == first
    other = LAMBDA if first == WORKERS else WORKERS
    with pytest.raises(ConfigurationError, match="moves it to"):
        await claim(store, other)


async def test_a_consumer_that_is_not_there_gets_no_host(store):
    assert not await set_host(store, "", WORKERS)
    assert await store.item("consumer") is None


async def test_a_host_changes_only_if_it_is_as_it_was_read(store):
    await join_generation(store, "new", (), take_over=False)
    before = (await look(store)).host
    assert not await set_host(store, "another", TO_LAMBDA)
    assert (await look(store)).host == before
    assert await set_host(store, before, TO_LAMBDA)
    assert (await look(store)).host == TO_LAMBDA


async def test_a_look_says_since_when_a_consumer_is_paused(store):
    await join_generation(store, "new", (), take_over=False)
    assert (await look(store)).paused == 0
    action = store.space.update("consumer")
    action.sets["paused"] = {"N": "17"}
    await store.write(action)
    assert (await look(store)).paused == 17


# -- the directory ---------------------------------------------------------------------------------


async def test_a_halt_is_dated_by_its_reason_and_gone_once_the_consumer_begins_or_leaves(store):
    entry = ConsumerEntry("shop", "app", LABEL)
    for moment, why, since in ((10, "gaps", 10), (20, "gaps", 10), (30, "x" * 5_000, 30)):
        await note_halt(store, "shop", moment, why)
        (halt,) = await halts(store, "shop", ["app", "other"])
        assert (halt.consumer, halt.since, halt.why) == ("app", since, why[:2_000])
    directory = CursorStore(store.dynamodb, directory_of(SCHEMA))
    await directory.write(enter(store.space, "shop"))
    assert await halts(store, "shop", ["app"]) == ()
    await note_halt(store, "shop", 40, "gaps")
    await directory.write(leave(SCHEMA, entry))
    assert await halts(store, "shop", ["app"]) == ()
    assert await entries(store.dynamodb, SCHEMA) == []


async def test_earlier_streams_of_a_consumer_are_found_the_newest_first(store):
    directory = CursorStore(store.dynamodb, directory_of(SCHEMA))
    labels = ("2026-01-01T00:00:00.000", "2026-02-01T00:00:00.000", LABEL)
    for label in labels:
        await directory.write(enter(of_stream(store, label).space, "shop"))
    await directory.write(enter(replace(store.space, consumer="other", label="x"), "shop"))
    await directory.write(enter(replace(store.space, label="y"), "another table"))
    found = await predecessors(store, "shop")
    assert [one.space.label for one in found] == [labels[1], labels[0]]
    assert {one.table for one in await entries(store.dynamodb, SCHEMA)} == {"shop", "another table"}


# -- where a consumer begins -----------------------------------------------------------------------


def founding(start, **facts):
    return Founding("shop", start, SimpleNamespace(), SimpleNamespace(), **facts)


def ago(seconds):
    return datetime.fromtimestamp(NOW - seconds, UTC)


async def whole(since, created):
    return SimpleNamespace(lacks=(), begins=frozenset({f"since {since:.0f}"}))


async def holed(since, created):
    return SimpleNamespace(lacks=("shard s: a hole",), begins=frozenset({"s"}))


@pytest.mark.parametrize(
    ("start", "facts", "origin"),
    [
        ("trim_horizon", {"exact": True}, Origin(0)),
        ("latest", {"exact": True, "past": whole}, Origin(NOW)),
        (ago(60), {}, Origin(NOW - 60)),
        (ago(60), {"exact": True}, Origin(NOW - 60)),
        (ago(60), {"past": holed}, Origin(NOW - 60)),
        (ago(REACH_SECONDS), {"exact": True}, Origin(NOW - REACH_SECONDS)),
        (ago(3 * DAY), {}, Origin(0)),
        (ago(3 * DAY), {"past": whole}, Origin(NOW - 3 * DAY, {f"since {NOW - 3 * DAY}"})),
    ],
)
async def test_a_consumer_begins_where_it_says_as_far_as_anything_reaches(
    store, start, facts, origin
):
    found = await founding(start, **facts).origin(store, NOW)
    assert (found.since, found.begins, found.lost) == (origin.since, origin.begins, None)


@pytest.mark.parametrize(
    ("facts", "since", "said"),
    [
        ({"exact": True}, 0, "the app has no archive="),
        ({"past": holed}, NOW - 3 * DAY, "shard s: a hole"),
    ],
)
async def test_what_is_missing_since_its_start_is_a_loss_up_to_now(store, facts, since, said):
    found = await founding(ago(3 * DAY), **facts).origin(store, NOW)
    assert found.since == since
    assert said in str(found.lost)
    assert (found.lost.since, found.lost.until) == (NOW - 3 * DAY, NOW)


@pytest.mark.parametrize("before", [False, True])
async def test_nothing_is_missing_from_before_the_stream_unless_there_was_another(store, before):
    now = int(CREATED.timestamp()) + 3600
    directory = CursorStore(store.dynamodb, directory_of(SCHEMA))
    await directory.write(enter(replace(store.space, label="x"), "another table"))
    if before:
        await directory.write(enter(of_stream(store, "2026-01-01T00:00:00.000").space, "shop"))
    begun = founding(CREATED - timedelta(days=2), exact=True)
    found = await begun.origin(store, now)
    assert (found.since, found.begins) == (int(CREATED.timestamp()), frozenset())
    assert (found.lost is not None) is before
    later = await founding(CREATED + timedelta(seconds=60), exact=True).origin(store, now)
    assert later.lost is None


async def test_in_a_control_table_nothing_begins_anew_that_has_run_in_the_table_itself(store):
    elsewhere = founding("latest", elsewhere=store.space)
    await elsewhere.require_not_elsewhere(store)
    await founding("latest").require_not_elsewhere(store)
    await join_generation(store, "new", (), take_over=False)
    assert await newest_generation(store) is not None
    await founding("latest").require_not_elsewhere(store)
    with pytest.raises(ConfigurationError, match="are in table shop itself"):
        await elsewhere.require_not_elsewhere(store)


def test_a_handler_that_the_app_takes_over_keeps_its_start():
    told = SimpleNamespace(name="told", declared="told")
    declared = founding("latest", listeners=frozenset({"told"}))
    declared.require_not_taken({"told"}, [told])
    founding("latest").require_not_taken({"other"}, [told])
    with pytest.raises(ConfigurationError, match="keep its start="):
        founding("latest").require_not_taken({"told"}, [told])


async def ran(store, consumer, label=LABEL, **facts):
    """Let another consumer of the table begin, with such a generation."""
    space = replace(store.space, consumer=consumer, label=label)
    other = CursorStore(store.dynamodb, space)
    await join_generation(other, "its", (), take_over=False)
    newest = await newest_generation(other)
    await write_generation(other, newest, replace(newest, **facts))
    await CursorStore(store.dynamodb, directory_of(SCHEMA)).write(enter(space, "shop"))


@pytest.mark.parametrize(
    ("facts", "listeners", "refused"),
    [
        ({}, (), True),
        ({}, ("told",), False),
        ({"host": WORKERS}, (), True),
        *(({"host": host}, (), False) for host in ENDED),
        ({"label": "2026-01-01T00:00:00.000"}, (), False),
    ],
)
async def test_a_handler_that_has_run_apart_has_to_join(store, facts, listeners, refused):
    told = SimpleNamespace(name="told", declared="told")
    await ran(store, "app.told", **facts)
    declared = founding("latest", listeners=frozenset(listeners))
    if not refused:
        await declared.require_none_apart(store, [told])
        return
    with pytest.raises(ConfigurationError, match=r"told: it has run as .* app\.told, and the app"):
        await declared.require_none_apart(store, [told])


def aggregate(name="Sales", definition="v1", *, is_aggregate=True):
    return SimpleNamespace(
        name=name, declared=name, definition=definition, is_aggregate=is_aggregate
    )


@pytest.mark.parametrize(
    ("consumer", "known", "one", "found"),
    [
        ("app.sales", {}, aggregate(), {"Sales"}),
        ("app.sales", {}, aggregate(definition="v2"), {"Sales"}),
        ("app.sales", {}, aggregate("Views"), set()),
        ("apple", {}, aggregate(), None),
        ("other", {}, aggregate(), None),
        ("other", {}, aggregate(definition="v2"), set()),
        ("other", {}, aggregate(is_aggregate=False), set()),
        ("other", {"Sales": "v1"}, aggregate(), set()),
        ("other", {"Sales": ""}, aggregate(), None),
        ("app", {}, aggregate(), set()),
    ],
)
async def test_an_aggregate_that_another_app_counts_is_refused_and_of_this_app_is_counted_anew(
    store, consumer, known, one, found
):
    await ran(store, consumer, aggregates={"Sales": "v1"})
    newest = SimpleNamespace(aggregates=known)
    counted = founding("latest", app="app").counted_before(store, newest, [one])
    if found is None:
        with pytest.raises(ConfigurationError, match="each change would count twice"):
            await counted
    else:
        assert await counted == found
