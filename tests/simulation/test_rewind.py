"""A rewind reads again from a moment on, in order; whatever would come out wrong is refused.

And an end to a consumer: its control items go, all of them, and nothing else.
"""

from contextlib import contextmanager
from functools import partial
from typing import Annotated

import anyio
import pytest

from streamkit import Add, Aggregate, App, Count, Entity, Inserted, Key, Modified, Put, Table
from streamkit.core.tables import survey
from streamkit.errors import ConfigurationError
from streamkit.fleet import generation, joining, rollout
from streamkit.fleet.members import Member, MemberList
from streamkit.operate.consumers import list_consumers
from streamkit.operate.deletion import delete_consumer
from streamkit.operate.rewind import RewindRefused, rewind
from streamkit.operate.starts import start_findings
from streamkit.operate.status import read_status
from streamkit.progress.clock import CorrectedClock, utc
from streamkit.progress.cursor import CursorStore
from streamkit.progress.operation import operator
from streamkit.settings import Settings
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import CrashPoint, Process, World
from tests.simulation.shop import TABLE, create_table

MORTAL = Settings(heartbeat=2, lease=7, look_interval=2, poll_ceiling=120, list_interval=600)
PATIENT = Settings(heartbeat=120, lease=300, look_interval=60, poll_ceiling=120, list_interval=600)


class Thing(Entity, pk="THING#{name}", sk="THING#{name}"):
    name: str
    n: int = 0


class Note(Entity, pk="NOTE#{name}", sk="NOTE#{name}"):
    name: str
    n: int = 0


class Things(Aggregate[Thing], pk="THINGS", sk="THINGS"):
    things: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, thing: Thing) -> Key["Things"]:
        return cls.key()


class Broken(Exception):
    pass


def make_app(*, name="rewound", poison=False, **options):
    """An app that notes each thing; `app.order` is what its handler has seen, in order."""
    app = App(name, table=TABLE, entities=[Note], **options)
    app.order = []

    @app.on
    def notes(change: Inserted[Thing] | Modified[Thing]) -> Put[Note] | None:
        if poison:
            raise Broken
        app.order.append((change.new.name, change.new.n))
        return Put(Note(name=change.new.name, n=change.new.n))

    return app


def make_world():
    world = World.create(2, shards=1)
    world.control.configure(roll_after=None)
    create_table(world)
    return world


def put(world, name, n):
    key = {"PK": {"S": f"THING#{name}"}, "SK": {"S": f"THING#{name}"}}
    body = {"TableName": TABLE, "Item": {**key, "name": {"S": name}, "n": {"N": str(n)}}}
    assert world.engine.call("dynamodb", "PutItem", body)[0] == 200


def control_items(world, consumer=""):
    prefix = f"_sk#{consumer}#" if consumer else "_sk#"
    return [item for item in world.items(TABLE) if item["PK"]["S"].startswith(prefix)]


async def stop_soon(worker):
    await anyio.sleep(900)
    worker.stop()


async def run(world, app, **options):
    """Run a worker for a quarter of an hour."""
    options = {"started": stop_soon} | options
    return await world.run_worker(app, settings=PATIENT, until_idle=False, **options)


async def back(world, app, to, *, process=None, **options):
    """Rewind; None if the process dies at it."""
    process, done = process or Process("operator"), []

    async def work(scope):
        async with world.clients(process) as aws:
            try:
                done.append(await rewind(app, aws, to, **{"clock": world.clock} | options))
            except RewindRefused as refusal:
                done.append(refusal)
        scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(work, group.cancel_scope)
        await process.dead.wait()
        group.cancel_scope.cancel()
    if done and isinstance(done[0], RewindRefused):
        raise done[0]
    return done[0] if done else None


async def written(world, app):
    """Write three changes of one item over two generations of shards; return when the second was."""
    put(world, "x", 1)
    await run(world, app)
    second = world.clock.time()
    put(world, "x", 2)
    world.control.roll(TABLE)
    put(world, "x", 3)
    await run(world, app)
    assert app.order == [("x", 1), ("x", 2), ("x", 3)]
    app.order.clear()
    return utc(second)


def test_a_rewind_reads_again_from_a_moment_on_through_shards_that_have_ended():
    async def scenario():
        world, app = make_world(), make_app()
        second = await written(world, app)
        done = await back(world, app, second)
        assert (done.generation, done.cursors) == (3, 2)
        await run(world, app)
        assert app.order == [("x", 2), ("x", 3)]
        put(world, "x", 4)
        await run(world, app)
        assert app.order[2:] == [("x", 4)]

    run_virtually(scenario)


def test_a_rewind_to_the_trim_horizon_reads_everything_again():
    async def scenario():
        world, app = make_world(), make_app()
        await written(world, app)
        await back(world, app, None)
        await run(world, app)
        assert app.order == [("x", 1), ("x", 2), ("x", 3)]

    run_virtually(scenario)


def test_the_trail_of_a_rewind_says_to_when_and_who_asked_for_it():
    async def scenario():
        world, app = make_world(), make_app()
        second = await written(world, app)
        await back(world, app, second)
        await run(world, app)
        async with world.clients() as aws:
            trail = (await read_status(app, aws, clock=world.clock)).audit
        said = ["rewind: asked for", f"rewind: to {second.isoformat()}"]
        assert [(entry.by, entry.what) for entry in trail] == [(operator(), one) for one in said]

    run_virtually(scenario)


def test_a_rewind_that_dies_anywhere_has_happened_or_has_not_and_can_be_repeated():
    async def scenario(crash):
        world, app = make_world(), make_app()
        second = await written(world, app)
        process = Process("operator", crash)
        done = await back(world, app, second, process=process)
        assert (done is None) == process.dead.is_set()
        (consumer,) = (i for i in control_items(world) if i.get("_sk_kind") == {"S": "consumer"})
        decided = consumer["_sk_generation"] == {"N": "3"}
        await run(world, app)
        seen = list(app.order)
        assert seen == ([("x", 2), ("x", 3)] if decided else [])
        app.order.clear()
        await back(world, app, second)
        await run(world, app)
        assert app.order == [("x", 2), ("x", 3)]
        return process.writes, bool(seen)

    writes, _ = run_virtually(scenario, None)
    outcomes = [run_virtually(scenario, CrashPoint(call, "after"))[1] for call in (0, *writes)]
    assert outcomes == sorted(outcomes), "one call decides"
    assert set(outcomes) == {False, True}


async def refused(world, app, to=None, **options):
    before = world.items(TABLE)
    with pytest.raises(RewindRefused) as caught:
        await back(world, app, to, **options)
    assert world.items(TABLE) == before
    return str(caught.value)


def test_a_rewind_is_refused_for_what_would_count_twice():
    async def scenario():
        world, app = make_world(), make_app()
        app.aggregate(Things)

        @app.on
        def adds(change: Inserted[Thing]) -> list[Add[Note]]:
            return []

        @app.on
        async def reads(change: Inserted[Thing], table: Table) -> Put[Note] | None:
            return None

        @app.on
        def says_nothing(change: Inserted[Thing]):
            return None

        await run(world, app)
        text = await refused(world, app)
        assert len(text.splitlines()) == 4
        assert "Add" in text
        allowed = ["adds", "reads", "says_nothing", "Things"]
        assert await refused(world, app, allow=allowed) == next(
            line for line in text.splitlines() if "aggregate" in line
        )

    run_virtually(scenario)


def test_a_rewind_is_refused_while_changes_are_parked_or_workers_live_or_the_code_is_other():
    async def scenario():
        world, app = make_world(), make_app(poison=True)
        assert "never run" in await refused(world, app)
        put(world, "x", 1)
        await run(world, app)
        assert "parked" in await refused(world, app)
        other = make_app()

        @other.on
        def more(change: Inserted[Thing]) -> None: ...

        assert "other handlers" in await refused(world, other)
        assert "no handler 'nobody'" in await refused(world, app, allow=["nobody"])

    run_virtually(scenario)


def test_a_rewind_is_refused_while_a_worker_beats_and_not_for_one_that_was_killed():
    async def scenario():
        world, app = make_world(), make_app()
        await run(world, app)
        async with world.clients() as aws:
            store = CursorStore(aws.dynamodb, (await survey(app, aws)).space(app))
            member_list, beats = MemberList(store), 0
            await member_list.add(Member("killed"))
            await back(world, app, None)
            await member_list.add(Member("alive"))

            async def beat(member):
                while True:
                    await anyio.sleep(3)
                    nonlocal beats
                    beats += 1
                    await member_list.write(Member(member, beats=beats))

            async with anyio.create_task_group() as group:
                group.start_soon(beat, "alive")
                with pytest.raises(RewindRefused, match="stop them first: alive"):
                    await back(world, app, None)
                group.cancel_scope.cancel()

    run_virtually(scenario)


class LateParker(Process):
    """Is killed while a commit that parks is on its way, which arrives when it is let go."""

    def __init__(self):
        super().__init__("late")
        self.sent, self.arrives = anyio.Event(), anyio.Event()

    async def intercept(self, call, apply):
        if call.operation == "TransactWriteItems" and b"#parked#" in call.payload:
            self.sent.set()
            await self.arrives.wait()
            apply()
            self.kill()
        if self.sent.is_set():
            await anyio.sleep_forever()  # nothing else of it gets out, its heartbeats neither
        return await super().intercept(call, apply)


DECISION = (b"rewinding", b"BOOL")
DELETION = (b"Delete", b"#cursor#")
"""What the write has that decides a rewind, and the first one that deletes cursors after it."""


class Deciding(Process):
    """Stands still before a write of a rewind, until it is told to go on."""

    def __init__(self, write=DECISION):
        super().__init__("deciding")
        self.there, self.goes_on, self.write = anyio.Event(), anyio.Event(), write

    async def intercept(self, call, apply):
        if all(text in call.payload for text in self.write) and not self.there.is_set():
            self.there.set()
            await self.goes_on.wait()
        return await super().intercept(call, apply)


async def rewound_by(world, app, operator, outcome):
    try:
        outcome.append(await back(world, app, None, process=operator))
    except RewindRefused as refusal:
        outcome.append(refusal)


@pytest.mark.parametrize("moment", [0.0, 0.01, 3.0, DECISION, DELETION, 20.0])
def test_a_change_that_a_dying_worker_parks_late_is_seen_by_a_rewind_or_never_parked(moment):
    """Otherwise the stale change runs some day after the newer ones, which are read again.

    It arrives after so many seconds, or just before a write: between the last look and the
    decision, or after what was parked is dropped.
    """
    seconds = moment if isinstance(moment, float) else None

    async def scenario():
        world, app = make_world(), make_app()
        put(world, "x", 1)
        await run(world, app)
        late, outcome = LateParker(), []
        operator = Deciding(DECISION if seconds is not None else moment)
        async with anyio.create_task_group() as group:
            broken = make_app(poison=True)
            group.start_soon(
                partial(world.run_worker, broken, process=late, settings=MORTAL, until_idle=False)
            )
            put(world, "x", 2)
            await late.sent.wait()
            group.start_soon(rewound_by, world, app, operator, outcome)
            if seconds is None:
                await operator.there.wait()
            else:
                operator.goes_on.set()
                await anyio.sleep(seconds)
            late.arrives.set()
            await anyio.sleep(1)
            operator.goes_on.set()
            await anyio.sleep(60)
            group.cancel_scope.cancel()
        parked = [item for item in control_items(world) if item["_sk_kind"] == {"S": "parked"}]
        assert bool(parked) == isinstance(outcome[0], RewindRefused)
        assert not parked or "changes are parked" in str(outcome[0])
        asking = [item for item in control_items(world) if "_sk_asks" in item]
        assert asking == [], "decided or refused, the question is over"

    run_virtually(scenario)


async def decided_late(meanwhile):
    """Let something happen while a rewind is about to be decided; return what comes of that."""
    world, app = make_world(), make_app()
    put(world, "x", 1)
    await run(world, app)
    operator, outcome = Deciding(), []
    async with anyio.create_task_group() as group:
        group.start_soon(rewound_by, world, app, operator, outcome)
        await operator.there.wait()
        await meanwhile(world, app)
        operator.goes_on.set()
    return world, app, outcome[0]


def test_a_worker_that_begins_before_a_rewind_is_decided_prevents_it():
    async def begins(world, app):
        put(world, "x", 2)
        await run(world, make_app(poison=True))

    async def scenario():
        world, app, refusal = await decided_late(begins)
        assert isinstance(refusal, RewindRefused)
        assert "try again" in str(refusal)
        app.order.clear()
        put(world, "y", 3)
        await run(world, app)
        assert sorted(app.order) == [("x", 2), ("y", 3)], "what was parked runs, and x 1 does not"

    run_virtually(scenario)


@pytest.fixture
def as_an_older_build(monkeypatch):
    """What makes workers begin as a build did that knows nothing of questions."""

    async def newest(store):
        item = await store.item("consumer")
        return item and generation.read_generation({n: v for n, v in item.items() if n != "asks"})

    @contextmanager
    def older():
        with monkeypatch.context() as patch:
            patch.setattr(joining, "newest_generation", newest)
            patch.setattr(rollout, "newest_generation", newest)
            patch.setattr(generation, "newest_generation", newest)
            patch.setattr(generation, "_TEXTS", ("host", "incarnation", "mover"))
            yield

    return older


@pytest.mark.parametrize("seconds", [10, 900])
def test_a_worker_of_an_older_build_parks_nothing_in_a_generation_that_is_asked_for(
    as_an_older_build, seconds
):
    """It stands by; when its patience ends it starts a generation, and the rewind is refused."""

    async def stop(worker):
        await anyio.sleep(seconds)
        worker.stop()

    async def begins(world, app):
        put(world, "x", 2)
        with as_an_older_build():
            await run(world, make_app(poison=True), started=stop)

    async def scenario():
        world, app, outcome = await decided_late(begins)
        parked = [item for item in control_items(world) if item["_sk_kind"] == {"S": "parked"}]
        refused = isinstance(outcome, RewindRefused)
        assert bool(parked) == refused == (seconds == 900)
        app.order.clear()
        await run(world, app)
        assert app.order == ([("x", 2)] if refused else [("x", 1), ("x", 2)])

    run_virtually(scenario)


def test_a_worker_of_an_older_build_goes_on_after_a_rewind_that_died_while_it_asked(
    as_an_older_build,
):
    async def scenario():
        world, app = make_world(), make_app()
        put(world, "x", 1)
        await run(world, app)
        operator, outcome = Deciding(), []
        async with anyio.create_task_group() as group:
            group.start_soon(rewound_by, world, app, operator, outcome)
            await operator.there.wait()
            group.cancel_scope.cancel()
        put(world, "x", 2)
        with as_an_older_build():
            await run(world, app)
        assert app.order == [("x", 1), ("x", 2)]
        put(world, "x", 3)
        await run(world, app)
        assert app.order[2:] == [("x", 3)]
        assert (await back(world, app, None)).cursors == 1, "nothing of the question is left"

    run_virtually(scenario)


def test_a_rewind_that_another_has_decided_and_a_worker_finished_is_not_decided_again():
    async def others(world, app):
        await back(world, app, None)
        await run(world, app)

    async def scenario():
        _, app, refusal = await decided_late(others)
        assert isinstance(refusal, RewindRefused)
        assert app.order == [("x", 1), ("x", 1)]

    run_virtually(scenario)


@pytest.mark.parametrize(
    ("hours", "said"), [(-1, "in the future"), (23.5, "more than 23 hours ago")]
)
def test_a_rewind_goes_back_as_far_as_the_stream_surely_does(hours, said):
    async def scenario():
        world, app = make_world(), make_app()
        await run(world, app)
        assert said in await refused(world, app, utc(world.clock.time() - hours * 3600))

    run_virtually(scenario)


@pytest.mark.parametrize("hours", [-20, 20])
def test_a_rewind_takes_its_moment_by_the_tables_clock(hours):
    """A machine whose clock is wrong refused moments, or asked the archive for them."""

    async def scenario():
        world, app = make_world(), make_app()
        second = await written(world, app)
        wrong = CorrectedClock(world.clock, hours * 3600)
        later = utc(world.clock.time() + 3600)
        with pytest.raises(RewindRefused, match="in the future"):
            await back(world, app, later, clock=wrong)
        before = world.clock.time()
        await back(world, app, second, clock=wrong)
        await run(world, app)
        assert app.order == [("x", 2), ("x", 3)]
        async with world.clients() as aws:
            newest = await generation.newest_generation((await survey(app, aws)).store(app, aws))
        assert before - 1 <= newest.founded <= world.clock.time()

    run_virtually(scenario)


# -- consumers -------------------------------------------------------------------------------------


def test_consumers_of_a_table_are_listed_with_where_they_stand():
    async def scenario():
        world = make_world()
        await run(world, make_app(name="first"))
        await run(world, make_app(name="second", start="latest"))
        async with world.clients() as aws:
            first, second = await list_consumers(aws, TABLE)
        assert (first.name, second.name) == ("first", "second")
        assert (first.generation, first.shards, first.workers, first.since) == (1, 1, 0, 0)
        assert first.current
        assert second.since > 0

    run_virtually(scenario)


def test_a_deleted_consumer_leaves_nothing_and_others_keep_everything():
    async def scenario():
        world, app = make_world(), make_app(name="first", poison=True)
        put(world, "x", 1)
        put(world, "x", 2)
        await run(world, app)
        await run(world, make_app(name="second"))
        world.control.split(TABLE)
        await run(world, app)
        others = control_items(world, "second")
        scans = [call for call in world.calls if call.operation == "Scan"]
        async with world.clients() as aws:
            deleted = await delete_consumer(aws, TABLE, "first", clock=world.clock)
            assert [one.name for one in await list_consumers(aws, TABLE)] == ["second"]
        assert [call for call in world.calls if call.operation == "Scan"] == scans
        assert deleted > 10
        assert control_items(world, "first") == []
        assert control_items(world, "second") == others
        await run(world, make_app(name="second"))

    run_virtually(scenario)


class Deleting(Deciding):
    """Stands still before the first transaction that deletes something."""

    async def intercept(self, call, apply):
        deletes = call.operation == "TransactWriteItems" and b'"Delete"' in call.payload
        if deletes and not self.there.is_set():
            self.there.set()
            await self.goes_on.wait()
        return await Process.intercept(self, call, apply)


def test_nothing_of_a_deleted_consumer_is_left_by_a_commit_that_was_late_or_a_worker_that_begins():
    async def scenario():
        world, app = make_world(), make_app(name="first")
        put(world, "x", 1)
        await run(world, app)
        late, operator = LateParker(), Deleting()
        async with anyio.create_task_group() as group:
            broken = make_app(name="first", poison=True)
            group.start_soon(
                partial(world.run_worker, broken, process=late, settings=MORTAL, until_idle=False)
            )
            put(world, "x", 2)
            await late.sent.wait()

            async def deletes():
                async with world.clients(operator) as aws:
                    await delete_consumer(aws, TABLE, "first", clock=world.clock)
                group.cancel_scope.cancel()

            group.start_soon(deletes)
            await operator.there.wait()
            late.arrives.set()
            await anyio.sleep(1)
            with pytest.raises(ConfigurationError, match="being deleted"):
                await run(world, app)
            operator.goes_on.set()
            await anyio.sleep(60)
        assert control_items(world, "first") == []

    run_virtually(scenario)


def test_a_consumer_that_nobody_knows_cannot_be_deleted():
    async def scenario():
        world = make_world()
        async with world.clients() as aws:
            with pytest.raises(ConfigurationError, match="knows no consumer"):
                await delete_consumer(aws, TABLE, "first", clock=world.clock)

    run_virtually(scenario)


def test_check_says_that_a_start_was_changed_in_vain():
    async def scenario():
        world, app = make_world(), make_app(start="latest")
        async with world.clients() as aws:
            tables = await survey(app, aws)
            assert await start_findings(app, aws, tables) == []
            await run(world, app)
            assert await start_findings(app, aws, tables) == []
            (finding,) = await start_findings(make_app(), aws, tables)
        assert "no effect" in finding.text
        assert finding.severity == "warning"

    run_virtually(scenario)
