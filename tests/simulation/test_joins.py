"""A handler with a start of its own becomes one of its app: each change once, and in order."""

import random
from dataclasses import replace
from functools import partial
from typing import Annotated

import pytest

from streamkit import Add, Aggregate, Inserted, Put, Query
from streamkit import Count as CountOf
from streamkit.core.tables import open_store
from streamkit.errors import ConfigurationError, LeaseLost
from streamkit.fleet.cursors import every_cursor
from streamkit.fleet.generation import begin_move, newest_generation
from streamkit.fleet.hosting import JOINED, JOINING, WORKERS, set_host
from streamkit.operate.moves import MoveRefused, join_handler, move_to_lambda
from streamkit.operate.moves.into_app import apart, reaches
from streamkit.operate.redrive import redrive
from streamkit.operate.status import read_status
from streamkit.progress.commit import Batch, Committer
from streamkit.progress.control import Cursor
from streamkit.testing.world import Process
from tests.simulation.archived import RARELY
from tests.simulation.joined import (
    OFTEN,
    Count,
    Deed,
    Deeds,
    Last,
    ahead_of_its_app,
    app_of,
    deploy,
    join,
    run_alone,
)
from tests.simulation.rebuilds import Gate


def test_a_handler_that_is_ahead_joins_and_each_change_reaches_it_once(harness_of):
    harness = harness_of(app_of(), shards=2, settings=RARELY)
    deeds = ahead_of_its_app(harness)
    assert (deeds.counted("app"), deeds.counted("follow")) == (6, 14)
    done = join(harness)
    assert (done.shards, done.ahead) == (2, 2)
    deeds.write(*range(8))
    deploy(harness, app_of("joined"))
    deeds.all_done()
    harness.split()
    deeds.write(*range(8))
    harness.settle()
    deeds.all_done()


def test_status_says_where_a_handler_that_has_joined_is_ahead_until_the_app_is_there(harness_of):
    def under_way(app):
        status = harness.operate(lambda aws: read_status(app, aws, clock=harness.world.clock))
        return [(one.kind, one.name, one.phase) for one in status.operations]

    harness = harness_of(app_of(), shards=2, settings=RARELY)
    ahead_of_its_app(harness)
    join(harness)
    app = app_of("joined")
    assert under_way(app) == [("join", "follow", "ahead of the app in 2 shards")]
    deploy(harness, app)
    harness.stop()
    assert under_way(app) == []


def test_a_handler_that_stands_where_its_app_stands_joins(harness_of):
    harness = harness_of(app_of(), shards=2, settings=RARELY)
    deeds = Deeds(harness)
    deeds.write(*range(6))
    harness.settle()
    harness.stop()
    run_alone(harness, harness.app.listeners["follow"])
    join(harness)
    deeds.write(*range(8))
    deploy(harness, app_of("joined"))
    deeds.all_done()


def cursors(harness, app):
    return harness.operate(partial(read_cursors, app))


async def read_cursors(app, aws):
    return await every_cursor(await open_store(app, aws))


def test_once_the_app_has_passed_them_its_cursors_have_no_marks(harness_of):
    harness = harness_of(app_of(), shards=1, settings=RARELY)
    deeds = ahead_of_its_app(harness)
    join(harness)
    joined = app_of("joined")
    (mark,) = [mark for one in cursors(harness, joined).values() for mark in one.joined]
    assert mark.endswith(":follow")
    deploy(harness, joined)
    harness.split()
    deeds.write(*range(8))
    harness.settle()
    harness.stop()
    assert [one.joined for one in cursors(harness, joined).values()] == [frozenset()] * 3
    deeds.all_done()


def writing_each(follows):
    """The app with a handler that writes an item for each change: a commit has 99 of them."""
    app = app_of(follows)

    @app.on
    def each(change: Inserted[Deed]) -> Put[Count]:
        return Put(Count(by=f"deed {change.new.number}"))

    return app


@pytest.mark.parametrize("at", range(10, 40, 2))
def test_a_worker_that_dies_before_the_marks_are_passed_leaves_them_to_the_next(harness_of, at):
    harness = harness_of(writing_each("apart"), shards=1, settings=OFTEN)
    deeds = Deeds(harness)
    harness.settle()
    harness.stop()
    deeds.write(*range(250))
    run_alone(harness, harness.app.listeners["follow"])
    join(harness)
    harness.app = writing_each("joined")
    harness.crash(at=at, moment="after")
    harness.settle()
    harness.settle()
    deeds.all_done()


def telling(apart):
    """The app with a fan-out, with a start of its own or without."""
    app = app_of("no")
    start = {"start": "2020-01-01"} if apart else {}

    def watchers(change: Inserted[Deed]) -> Query[Last]:
        return Last.query(number=99)

    @app.fan_out(watchers, **start)
    def tell(change: Inserted[Deed], to: Last) -> Add[Count]:
        return Add(Count.key(by="told"), changes=1)

    return app


def test_a_fan_out_joins_like_any_handler(harness_of):
    harness = harness_of(telling(apart=True), shards=1, settings=RARELY)
    harness.put(Last(number=99))
    deeds = Deeds(harness)
    deeds.write(*range(6))
    harness.settle()
    harness.stop()
    deeds.write(6, 7)
    run_alone(harness, harness.app.listeners["tell"])
    assert deeds.counted("told") == 8
    join(harness, telling(apart=False), "tell")
    deeds.write(8)
    deploy(harness, telling(apart=False))
    assert deeds.counted("told") == 9


# -- what is refused ------------------------------------------------------------------------------


def goes_on(harness, deeds):
    """After a refusal both consumers go on, and the handler joins once nothing stands against it."""
    deeds.write(*range(8))
    harness.settle()
    harness.stop()
    run_alone(harness, harness.app.listeners["follow"])
    join(harness)
    deeds.write(*range(8))
    deploy(harness, app_of("joined"))
    deeds.all_done()


def behind_its_app(harness):
    """Let both read, then the app alone."""
    deeds = Deeds(harness)
    deeds.write(*range(6))
    harness.settle()
    harness.stop()
    deeds.write(*range(8))
    run_alone(harness, app_of("no"))
    return deeds


def test_a_handler_that_is_behind_is_refused_and_both_go_on(harness_of):
    """Row J5: the app would never run it for the changes in between."""
    harness = harness_of(app_of(), shards=2, settings=RARELY)
    deeds = behind_its_app(harness)
    with pytest.raises(MoveRefused, match=r"behind deeds in 2 shards.*worker MODULE:APP\.follow"):
        join(harness)
    goes_on(harness, deeds)


@pytest.mark.parametrize("ended", [False, True])
def test_a_handler_that_is_ahead_by_a_whole_shard_is_refused_and_both_go_on(harness_of, ended):
    """The app would run it again for the child, of which it has no cursor yet."""
    harness = harness_of(app_of(), shards=1, settings=RARELY)
    deeds = Deeds(harness)
    deeds.write(*range(6))
    harness.settle()
    harness.stop()
    for _ in range(1 + ended):
        harness.roll()
        deeds.write(*range(8))
    run_alone(harness, harness.app.listeners["follow"])
    with pytest.raises(MoveRefused, match="ahead of deeds by whole shards"):
        join(harness)
    goes_on(harness, deeds)


def test_a_handler_that_has_not_begun_a_child_is_refused_and_both_go_on(harness_of):
    harness = harness_of(app_of(), shards=1, settings=RARELY)
    deeds = Deeds(harness)
    deeds.write(*range(6))
    harness.settle()
    harness.stop()
    harness.roll()
    deeds.write(*range(8))
    run_alone(harness, app_of("no"))
    with pytest.raises(MoveRefused, match="behind deeds"):
        join(harness)
    goes_on(harness, deeds)


def test_parked_changes_are_refused_and_both_go_on(harness_of):
    """Row J8: the app would run later changes of the item before them."""
    harness = harness_of(app_of(), shards=1, settings=RARELY, lenient=True)
    deeds = Deeds(harness)
    harness.put(Last(number=1, version=7))
    deeds.write(*range(6))
    harness.settle()
    assert [one.handler for one in harness.parked()] == ["follow"]
    harness.stop()
    run_alone(harness, harness.app.listeners["follow"])
    with pytest.raises(MoveRefused, match=r"changes of follow are parked \(queues: 1\)"):
        join(harness)
    harness.delete(Last.key(number=1))
    harness.operate(lambda aws: redrive(harness.app.listeners["follow"], aws))
    goes_on(harness, deeds)


def test_a_half_done_change_is_refused(harness_of):
    harness = harness_of(app_of(), shards=1, settings=RARELY)
    ahead_of_its_app(harness)

    async def half(aws):
        store = await open_store(harness.app.listeners["follow"], aws)
        ((shard, cursor),) = (await every_cursor(store)).items()
        action = store.space.update("cursor", shard)
        action.sets |= {"done": {"SS": [f"{int(cursor.position) + 1:040d}:follow"]}}
        await store.write(action)

    harness.operate(half)
    with pytest.raises(MoveRefused, match="behind deeds in 1 shards"):
        join(harness)


def test_workers_that_are_alive_are_named(harness_of):
    harness = harness_of(app_of(), settings=OFTEN)
    Deeds(harness).write(1)
    harness.settle()
    with pytest.raises(MoveRefused, match="workers are alive, stop them first"):
        join(harness)
    harness.stop()
    harness.app = harness.app.listeners["follow"]
    harness.settle()
    with pytest.raises(MoveRefused, match="workers are alive, stop them first"):
        join(harness)


def other_handler():
    app = app_of("no")

    @app.on(name="follow")
    def unlike(change: Inserted[Deed]) -> None: ...

    return app


def counting():
    app = app_of("no")

    @app.aggregate
    class Follow(Aggregate[Deed], pk="FOLLOW", sk="FOLLOW"):
        deeds: Annotated[int, CountOf()] = 0

    return app


REFUSED = {
    "still declares follow with a start=": (app_of, "follow"),
    "has no handler 'other'": (partial(app_of, "joined"), "other"),
    "count has never run as a consumer of its own": (partial(app_of, "joined"), "count"),
    "runs another handler": (other_handler, "follow"),
    "an aggregate joins by a rebuild": (counting, "Follow"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_join_is_named_before_anything_stands_still(harness_of, text):
    harness = harness_of(app_of(), shards=1, settings=RARELY)
    deeds = ahead_of_its_app(harness)
    make, name = REFUSED[text]
    with pytest.raises(MoveRefused, match=text):
        join(harness, make(), name)
    harness.settle()
    deeds.all_done()


def test_handlers_join_one_after_the_other(harness_of):
    """The second one would run in the app at once, wherever its own consumer is."""

    def two(first, second):
        app = app_of(first)

        async def again(change: Inserted[Deed]) -> Add[Count]:
            return Add(Count.key(by="again"), changes=1)

        app.on(again) if second == "joined" else app.on(start="2020-01-01")(again)
        return app

    harness = harness_of(two("apart", "apart"), shards=1, settings=RARELY)
    deeds = ahead_of_its_app(harness)
    with pytest.raises(MoveRefused, match="keep its start= until follow has joined"):
        join(harness, two("joined", "joined"))
    join(harness, two("joined", "apart"))
    deploy(harness, two("joined", "apart"))
    harness.stop()
    run_alone(harness, harness.app.listeners["again"])
    join(harness, two("joined", "joined"), "again")
    deploy(harness, two("joined", "joined"))
    deeds.all_done()
    assert deeds.counted("again") == len(deeds.versions)


def test_what_has_never_run_cannot_join(harness_of):
    harness = harness_of(app_of(), shards=1, settings=RARELY)
    with pytest.raises(MoveRefused, match="deeds has never run"):
        join(harness)


def test_the_version_before_does_not_start_again_and_a_second_join_says_that_it_is_done(harness_of):
    """Its consumer of the handler would begin at its start again."""
    harness = harness_of(app_of(), shards=1, settings=RARELY)
    deeds = ahead_of_its_app(harness)
    join(harness)
    with pytest.raises(MoveRefused, match="has joined deeds already"):
        join(harness)
    with pytest.raises(ConfigurationError, match="deploy the version without its start="):
        deploy(harness, app_of())
    deploy(harness, app_of("joined"))
    deeds.all_done()


def test_without_a_join_the_app_refuses_the_handler_and_names_the_command(harness_of):
    harness = harness_of(app_of(), shards=1, settings=RARELY)
    ahead_of_its_app(harness)
    with pytest.raises(ConfigurationError, match=r"streamkit consumers join \.\.\. follow"):
        deploy(harness, app_of("joined"))


def test_later_versions_of_the_app_run_as_any_others(harness_of):
    harness = harness_of(app_of(), shards=1, settings=RARELY)
    deeds = ahead_of_its_app(harness)
    join(harness)
    deploy(harness, app_of("joined"))
    later = app_of("joined")

    @later.on
    def more(change: Inserted[Deed]) -> None: ...

    deploy(harness, later)
    deeds.write(*range(8))
    harness.settle()
    deeds.all_done()


def test_a_move_to_functions_waits_until_the_marks_are_passed(harness_of):
    """A mark of an item says how far all handlers are, and one of them is ahead."""
    harness = harness_of(app_of(), shards=1, settings=RARELY)
    ahead_of_its_app(harness)
    join(harness)
    clock, joined = harness.world.clock, app_of("joined")
    with pytest.raises(MoveRefused, match="not past the point where follow has joined"):
        harness.operate(lambda aws: move_to_lambda(joined, aws, wait=0.0, clock=clock))


def test_a_handler_reaches_its_app_only_with_all_that_the_app_drops():
    """What was made before the app's own start is dropped, whoever would want it."""
    there = Cursor("s", position="7", since=50, dated=80)
    assert reaches(there, Cursor("s", position="7"))
    assert reaches(there, Cursor("s", since=80))
    assert not reaches(there, Cursor("s", since=81))
    assert reaches(replace(there, seen=90), Cursor("s", since=81))
    assert not reaches(there, Cursor("s", position="8"))
    assert reaches(Cursor("s"), Cursor("s"))
    assert not reaches(Cursor("s", since=1), Cursor("s"))
    assert not reaches(Cursor("s"), Cursor("s", position="7"))


def at(name, parent=None, *, finished=False, position="5"):
    state = "finished" if finished else "active"
    return Cursor(name, parent=parent, position=position, state=state)


P, DONE = at("p"), at("p", finished=True)
APART = {
    "both in the parent": ([P], [P], [], []),
    "the handler has a child": ([DONE], [DONE, at("c", "p")], [], ["c"]),
    "and has finished it": ([DONE], [DONE, at("c", "p", finished=True)], [], ["c"]),
    "the app has one": ([DONE, at("c", "p")], [DONE], ["c"], []),
    "and the app has finished it": ([DONE, at("c", "p", finished=True)], [DONE], ["c"], []),
    "the app has finished the parent": ([DONE, at("c", "p")], [P], ["c", "p"], []),
    "the app has forgotten the parent": ([at("c", "p")], [DONE, at("c", "p")], [], []),
    "the handler began with the child": ([DONE, at("c", "p")], [at("c", "p")], [], []),
    "and is in the parent, in the archive": ([at("c", "p")], [P], ["c", "p"], []),
    "a grandchild of a shard that nobody knows": ([DONE], [DONE, at("g", "c")], [], ["g"]),
}


@pytest.mark.parametrize("name", APART)
def test_only_a_handler_in_the_same_shards_and_nowhere_behind_may_join(name):
    """What the explorer of `tests/models/joins.py` has found, and what is far in the past."""
    mine, done, behind, ahead = APART[name]
    found = apart({one.name: one for one in mine}, {one.name: one for one in done})
    assert found == (behind, ahead)


# -- what happens between the look and the decision ------------------------------------------------


class Command(Process):
    """A join beside the harness's workers, held before its decision."""

    def __init__(self, harness):
        self.gate = Gate(lambda call: call.operation == "TransactWriteItems" and decides(call))
        super().__init__("command", faults=self.gate)
        self.harness, self.said = harness, None
        self.task = harness._loop.create_task(self.work())
        while not self.gate.met.is_set():
            harness.advance("5s")

    async def work(self):
        clock = self.harness.world.clock
        async with self.harness.world.clients(self) as aws:
            try:
                await join_handler(app_of("joined"), aws, "follow", clock=clock)
            except MoveRefused as refused:
                self.said = str(refused)

    def goes_on(self):
        self.gate.open.set()
        while not self.task.done():
            self.harness.advance("5s")


def decides(call):
    return JOINED.encode() in call.payload


def test_a_worker_that_begins_before_the_decision_makes_it_fail(harness_of):
    """The app goes on, and would pass the handler's positions."""
    harness = harness_of(app_of(), shards=1, settings=OFTEN)
    deeds = ahead_of_its_app(harness)
    command = Command(harness)
    deeds.write(*range(8))
    run_alone(harness, app_of("no"))
    command.goes_on()
    assert "a worker began meanwhile" in command.said
    goes_on(harness, deeds)


def test_a_handler_whose_consumer_goes_on_before_the_decision_makes_it_fail(harness_of):
    """Another command has given up, and a worker of the handler has begun."""
    harness = harness_of(app_of(), shards=1, settings=OFTEN)
    deeds = ahead_of_its_app(harness)
    command = Command(harness)
    follow = harness.app.listeners["follow"]

    async def given_up(aws):
        return await set_host(await open_store(follow, aws), JOINING, WORKERS)

    assert harness.operate(given_up)
    deeds.write(*range(8))
    run_alone(harness, follow)
    harness.operate(partial(stands_still, follow))
    command.goes_on()
    assert "another command changed a consumer" in command.said
    harness.operate(given_up)
    goes_on(harness, deeds)


async def stands_still(app, aws):
    """Begin what a second command begins with."""
    store = await open_store(app, aws)
    await begin_move(store, await newest_generation(store), JOINING)


@pytest.mark.parametrize("late", ["app", "handler"])
def test_a_worker_that_only_seems_to_be_dead_commits_nothing_after_a_join(harness_of, late):
    """It has sent no heartbeat for a lease, and its commit is on its way."""
    harness = harness_of(app_of(), shards=1, settings=RARELY)
    ahead_of_its_app(harness)
    whose = harness.app if late == "app" else harness.app.listeners["follow"]

    async def taken(aws):
        store = await open_store(whose, aws)
        ((_, cursor),) = (await every_cursor(store)).items()
        return await store.take(cursor, "zombie", cursor.generation)

    cursor = harness.operate(taken)
    join(harness)

    async def commits(aws):
        store = await open_store(whose, aws)
        schemas = {store.space.schema.name: store.space.schema}
        zombie = Committer(aws.dynamodb, store.space, cursor, schemas, random.Random(0))
        await zombie.commit(Batch(replace(cursor, position="9" * 40)))

    with pytest.raises(LeaseLost):
        harness.operate(commits)
