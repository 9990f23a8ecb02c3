"""Records that may be trimmed unread are never passed over in silence, and never said falsely.

What one pass over the stream would have lost is told by the engine: it trims by virtual time.
"""

from typing import Annotated

import anyio
import pytest
from structlog.testing import capture_logs

from streamkit import Aggregate, App, Change, Count, Entity, Inserted, Key, Put
from streamkit.cli.verdicts import verdict
from streamkit.errors import ConfigurationError, RetentionLost
from streamkit.operate.status import read_status
from streamkit.progress.clock import utc
from streamkit.progress.control import START
from streamkit.settings import Settings
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import CrashPoint, Process, World
from tests.simulation.shop import TABLE, create_table

HOUR = 3600
PATIENT = Settings(heartbeat=120, lease=300, look_interval=60, poll_ceiling=120, list_interval=600)


class Thing(Entity, pk="THING#{name}", sk="THING#{name}"):
    name: str


class Note(Entity, pk="NOTE#{name}", sk="NOTE#{name}"):
    name: str


class Things(Aggregate[Thing], pk="THINGS", sk="THINGS"):
    things: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, thing: Thing) -> Key["Things"]:
        return cls.key()


def make_app(*, counts=False, **options):
    """An app that notes each thing; `app.order` is what its handler has seen, in order."""
    app = App("losses", table=TABLE, control_table="Control", entities=[Note], **options)
    app.order = []

    @app.on
    def notes(change: Inserted[Thing]) -> Put[Note]:
        app.order.append(change.new.name)
        return Put(Note(name=change.new.name))

    if counts:
        app.aggregate(Things)
    return app


def make_world(*, shards=1, **settings):
    """A world whose stream holds only the application's records."""
    world = World.create(1, shards=shards)
    world.control.configure(roll_after=None, **settings)
    create_table(world)
    body = {
        "TableName": "Control",
        "KeySchema": [{"AttributeName": "name", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "name", "AttributeType": "S"}],
        "BillingMode": "PAY_PER_REQUEST",
    }
    assert world.engine.call("dynamodb", "CreateTable", body)[0] == 200
    return world


def put(world, *names):
    for name in names:
        key = {"PK": {"S": f"THING#{name}"}, "SK": {"S": f"THING#{name}"}}
        body = {"TableName": TABLE, "Item": {**key, "name": {"S": name}}}
        assert world.engine.call("dynamodb", "PutItem", body)[0] == 200


def noted(world):
    keys = [item["PK"]["S"] for item in world.items(TABLE)]
    return {key.removeprefix("NOTE#") for key in keys if key.startswith("NOTE#")}


def control_items(world, kind):
    return [item for item in world.items("Control") if item.get("_sk_kind") == {"S": kind}]


def lost_at(world):
    """When each shard's cursor says that records may have been lost."""
    cursors = {item["_sk_name"]["S"]: item for item in control_items(world, "cursor")}
    return {n: int(c["_sk_lost"]["N"]) for n, c in cursors.items() if "_sk_lost" in c}


async def stop_soon(worker):
    await anyio.sleep(1200)
    worker.stop()


async def run(world, app, *, started=stop_soon, process=None):
    """Run a worker for 20 minutes: long enough to take over from one that died."""
    return await world.run_worker(
        app, settings=PATIENT, process=process, until_idle=False, started=started
    )


async def read_and_stop_for(world, app, hours):
    """Read one thing, then lose sight of the stream while another one is written."""
    put(world, "seen")
    await run(world, app)
    put(world, "lost")
    await anyio.sleep(hours * HOUR)
    put(world, "late")


# -- what is a loss --------------------------------------------------------------------------------


def test_a_weekends_stop_is_a_possible_loss_that_names_its_shard_and_its_time():
    async def scenario():
        world, app = make_world(), make_app()
        await read_and_stop_for(world, app, 60)
        with pytest.raises(RetentionLost) as caught:
            await run(world, app)
        lost, now = caught.value, world.clock.time()
        assert lost.shard == world.control.shards(TABLE)[0]["id"]
        assert lost.since < now - 59 * HOUR < lost.until < now
        assert (lost.certain, lost.gone) == (False, False)
        assert "possible loss" in str(lost)
        assert noted(world) == {"seen"}

    run_virtually(scenario)


def test_a_worker_that_halted_halts_again_until_somebody_decides():
    async def scenario():
        world, app = make_world(), make_app()
        await read_and_stop_for(world, app, 60)
        for _ in range(2):
            with pytest.raises(RetentionLost):
                await run(world, app)
        await run(world, make_app(on_loss="resume"))
        put(world, "after")
        await run(world, app)
        assert noted(world) == {"seen", "late", "after"}

    run_virtually(scenario)


# A stream may lose records early: another one under the same name, an emulator, an order to trim.


def things_counted(world):
    (item,) = [item for item in world.items(TABLE) if item["PK"]["S"] == "THINGS"]
    return int(item["things"]["N"])


@pytest.mark.parametrize("moment", ["between two workers", "under a live worker"])
def test_a_recent_position_behind_a_trim_is_a_possible_loss_and_never_a_jump(moment):
    async def scenario():
        world, app = make_world(), make_app(counts=True)

        async def trim_unread(worker):
            await anyio.sleep(60)
            put(world, *"cdefg")
            world.control.trim(TABLE)
            await stop_soon(worker)

        put(world, *"ab")
        if moment == "between two workers":
            await run(world, app)
            put(world, *"cdefg")
            world.control.trim(TABLE)
        put(world, *"hijkl")
        with pytest.raises(RetentionLost, match=r"possible loss.*trimmed early") as caught:
            await run(world, app, started=trim_unread)
        assert (caught.value.certain, caught.value.gone) == (False, False)
        async with world.clients() as aws:
            status = await read_status(app, aws, clock=world.clock)
        shards = tuple(shard["id"] for shard in world.control.shards(TABLE))
        assert (status.lost_shards, status.time_to_loss_seconds) == (shards, 0)
        reasons = verdict(status, alive=True)[1]
        assert f"changes may have been lost, of {', '.join(shards)}" in reasons
        await run(world, make_app(counts=True, on_loss="resume"))
        assert set(lost_at(world)) == set(shards)
        await run(world, app)
        assert things_counted(world) == 7, "of 12"

    run_virtually(scenario)


def test_an_early_trim_that_was_settled_is_not_said_again_by_the_next_worker():
    async def scenario():
        world, app = make_world(), make_app()
        put(world, "seen")
        await run(world, app)
        put(world, "lost")
        world.control.trim(TABLE)
        await run(world, make_app(on_loss="resume"))
        (first,) = lost_at(world).values()
        await run(world, app)
        put(world, "after")
        await run(world, app)
        assert noted(world) == {"seen", "after"}
        assert list(lost_at(world).values()) == [first]

    run_virtually(scenario)


def test_a_shard_that_is_gone_unread_is_a_loss_and_its_children_go_on():
    async def scenario():
        world, app = make_world(), make_app(on_loss="resume")
        put(world, "seen")
        await run(world, app)
        put(world, "lost")
        world.control.roll(TABLE)
        await anyio.sleep(60 * HOUR)
        put(world, "late")
        with pytest.raises(RetentionLost) as caught:
            await run(world, make_app())
        assert caught.value.gone
        await run(world, app)
        assert noted(world) == {"seen", "late"}
        assert len(lost_at(world)) >= 1

    run_virtually(scenario)


def test_a_shard_that_goes_unread_within_a_day_of_the_founding_is_a_loss():
    """The first worker dies before it has read; the shard was there, and is gone hours later."""

    async def scenario(call):
        world, app = make_world(), make_app()
        put(world, "lost")
        await run(world, app, process=Process("first", CrashPoint(call, "before")))
        shards = [c for c in control_items(world, "cursor") if c["_sk_name"]["S"] != "lister"]
        unread = [c for c in shards if c["_sk_position"]["S"] == START]
        world.control.roll(TABLE)
        await anyio.sleep(5 * HOUR)
        world.control.trim(TABLE)
        if not unread:
            return False
        with pytest.raises(RetentionLost) as caught:
            await run(world, app)
        assert (caught.value.gone, caught.value.certain) == (True, False)
        return True

    assert sum(run_virtually(scenario, call) for call in range(18, 30, 3))


def test_a_child_whose_parent_was_read_long_ago_may_have_lost_its_first_records():
    async def scenario():
        world, app = make_world(), make_app()
        put(world, "seen")
        await run(world, app)
        world.control.roll(TABLE)
        await run(world, app)
        put(world, "lost")
        await anyio.sleep(60 * HOUR)
        put(world, "late")
        with pytest.raises(RetentionLost, match="before it was ever read"):
            await run(world, app)
        await run(world, make_app(on_loss="resume"))
        assert noted(world) == {"seen", "late"}

    run_virtually(scenario)


def test_shards_that_came_and_went_unread_are_a_loss():
    async def scenario():
        world, app = make_world(), make_app()
        put(world, "seen")
        world.control.roll(TABLE)
        await run(world, app)
        put(world, "lost")
        for _ in range(2):
            world.control.roll(TABLE)
            await anyio.sleep(60 * HOUR)
        put(world, "late")
        with pytest.raises(RetentionLost):
            await run(world, app)
        await run(world, make_app(on_loss="resume"))
        assert noted(world) == {"seen", "late"}

    run_virtually(scenario)


def test_a_queue_stays_held_over_shards_that_came_and_went_unread():
    async def scenario():
        world = make_world()
        app = App("losses", table=TABLE, control_table="Control", on_loss="resume")

        @app.on(attempts=1)
        def notes(change: Change[Thing]) -> Put[Note]:
            if isinstance(change, Inserted):
                raise ValueError("cannot note this")
            return Put(Note(name=change.old.name))

        put(world, "held")
        await run(world, app)
        for _ in range(2):
            world.control.roll(TABLE)
            await anyio.sleep(60 * HOUR)
        key = {"PK": {"S": "THING#held"}, "SK": {"S": "THING#held"}}
        request = {"TableName": TABLE, "Key": key}
        assert world.engine.call("dynamodb", "DeleteItem", request)[0] == 200
        await run(world, app)
        assert noted(world) == set(), "a change has overtaken one that is parked before it"
        assert len(control_items(world, "parked")) == 2

    run_virtually(scenario)


def test_a_consumer_that_never_read_at_all_does_not_start_anew_in_silence():
    async def scenario():
        world, app = make_world(), make_app()
        process = Process("first")

        async def die(worker):
            while not control_items(world, "cursor"):
                await anyio.sleep(0.01)
            process.kill()

        assert not await run(world, app, process=process, started=die)
        assert control_items(world, "consumer")
        put(world, "lost")
        await anyio.sleep(60 * HOUR)
        put(world, "late")
        if {c["_sk_name"]["S"] for c in control_items(world, "cursor")} == {"lister"}:
            pytest.fail("the worker died before its shard had a cursor")
        with pytest.raises(RetentionLost, match="before it was ever read"):
            await run(world, app)

    run_virtually(scenario)


def test_a_stream_that_was_replaced_is_a_possible_loss_and_the_consumer_goes_on_as_itself():
    async def scenario():
        world, app = make_world(), make_app(counts=True)
        put(world, "seen")
        await run(world, app)
        world.control.disable(TABLE)
        put(world, "lost")
        world.control.enable(TABLE)
        put(world, "late")
        with pytest.raises(RetentionLost, match="the stream of table"):
            await run(world, app)
        assert len(control_items(world, "consumer")) == 1
        await run(world, make_app(counts=True, on_loss="resume", start="latest"))
        assert noted(world) == {"seen", "late"}
        first, second = sorted(
            control_items(world, "consumer"), key=lambda item: int(item["_sk_generation"]["N"])
        )
        assert int(second["_sk_generation"]["N"]) == int(first["_sk_generation"]["N"]) + 1
        assert int(second["_sk_lost"]["N"]) > 0
        assert second["_sk_rebuild"] == {"SS": ["Things"]}
        await run(world, app)  # settled for good: halts no more

    run_virtually(scenario)


def test_a_worker_under_which_the_stream_is_replaced_ends_and_the_next_one_says_what_may_be_lost():
    """Without a look at the table it would read the old stream, quiet for ever, and miss the new."""

    async def scenario():
        async def replace(worker):
            await anyio.sleep(60)
            world.control.disable(TABLE)
            await anyio.sleep(1300)  # the leader lists every ten minutes
            disabled.extend(one for one in logs if one["event"] == "stream.disabled")
            put(world, "lost")
            world.control.enable(TABLE)
            put(world, "late")

        disabled: list[dict] = []
        world, app = make_world(), make_app()
        put(world, "seen")
        with (
            capture_logs() as logs,
            pytest.raises(ConfigurationError, match="replaced by a new one, which this worker"),
        ):
            await run(world, app, started=replace)
        assert [(one["log_level"], one["table"]) for one in disabled][:1] == [("error", TABLE)]
        with pytest.raises(RetentionLost, match="the stream of table"):
            await run(world, app)
        await run(world, make_app(on_loss="resume"))
        assert noted(world) == {"seen", "late"}

    run_virtually(scenario)


# -- what is none ----------------------------------------------------------------------------------


@pytest.mark.parametrize("hours", [3, 20])
def test_a_stop_shorter_than_the_retention_loses_nothing(hours):
    async def scenario():
        world, app = make_world(), make_app()
        await read_and_stop_for(world, app, hours)
        await run(world, app)
        assert noted(world) == {"seen", "lost", "late"}

    run_virtually(scenario)


def test_a_quiet_shard_that_is_read_for_days_has_lost_nothing_when_it_is_read_again():
    async def scenario():
        world, app = make_world(), make_app()
        put(world, "seen")

        async def stop(worker):
            await anyio.sleep(25 * HOUR)
            worker.stop()

        await run(world, app, started=stop)
        await anyio.sleep(20 * HOUR)
        put(world, "late")
        await run(world, app)
        assert noted(world) == {"seen", "late"}
        assert lost_at(world) == {}

    run_virtually(scenario)


def test_shards_that_rolled_while_they_were_read_have_lost_nothing_however_quiet():
    async def scenario():
        world, app = make_world(shards=2), make_app()
        put(world, "seen")

        async def roll_and_stop(worker):
            for _ in range(3):
                await anyio.sleep(9 * HOUR)
                world.control.roll(TABLE)
            await anyio.sleep(HOUR)
            worker.stop()

        await run(world, app, started=roll_and_stop)
        await anyio.sleep(10 * HOUR)
        put(world, "late")
        await run(world, app)
        assert noted(world) == {"seen", "late"}

    run_virtually(scenario)


def test_a_new_consumer_of_an_old_stream_has_lost_nothing():
    async def scenario():
        world = make_world()
        for name in "abc":
            put(world, name)
            world.control.roll(TABLE)
            await anyio.sleep(20 * HOUR)
        put(world, "d")
        await run(world, make_app())
        assert noted(world) == {"c", "d"}

    run_virtually(scenario)


# -- what nobody reads -----------------------------------------------------------------------------


async def status_of(world, app, **options):
    async with world.clients() as aws:
        return await read_status(app, aws, clock=world.clock, **options)


def test_a_child_without_a_cursor_ages_in_reports_like_everything_that_is_unread():
    async def scenario():
        world, app = make_world(), make_app()
        put(world, "seen")
        await run(world, app)
        (parent,) = [shard["id"] for shard in world.control.shards(TABLE)]
        (child,) = world.control.roll(TABLE)
        (grandchild,) = world.control.roll(TABLE)
        assert (await status_of(world, app)).lag_seconds == 0
        put(world, "unread")
        await anyio.sleep(10 * HOUR)
        status = await status_of(world, app)
        assert status.unread_shards == (parent, child, grandchild)
        assert [shard.state for shard in status.shards] == ["active", "unread", "unread"]
        assert 10 * HOUR <= status.lag_seconds < 10 * HOUR + 60
        assert status.time_to_loss_seconds == 24 * HOUR - status.lag_seconds
        await anyio.sleep(15 * HOUR)
        status = await status_of(world, app)
        assert (status.time_to_loss_seconds, status.lost_shards) == (0, (parent,))

    run_virtually(scenario)


def test_a_child_whose_parent_is_readable_and_not_listed_is_read_by_nobody_and_said_to_be():
    async def scenario():
        world, app, said = make_world(), make_app(), []
        (parent,) = [shard["id"] for shard in world.control.shards(TABLE)]
        put(world, "first")
        world.control.roll(TABLE)
        world.control.hide(TABLE, parent)
        put(world, "second")

        async def look(worker):
            for hidden in (True, False):
                world.control.hide(TABLE, parent, hidden)
                await anyio.sleep(1200)
                said.append((worker.report.unread, len(noted(world))))
            worker.stop()

        await run(world, app, started=look)
        assert said == [(1, 0), (0, 2)]

    run_virtually(scenario)


@pytest.mark.parametrize("look_into_stream", [True, False])
def test_a_child_that_was_not_listed_when_its_parent_ended_ages_too(look_into_stream):
    async def scenario():
        world, app = make_world(children_hidden=2 * HOUR), make_app()

        async def roll_and_stop(worker):
            await anyio.sleep(60)
            world.control.roll(TABLE)
            await stop_soon(worker)

        put(world, "seen")
        await run(world, app, started=roll_and_stop)
        put(world, "unread")
        await anyio.sleep(10 * HOUR)
        status = await status_of(world, app, look_into_stream=look_into_stream)
        assert [shard.state for shard in status.shards] == ["finished", "unread"]
        assert len(status.unread_shards) == 1
        assert 10 * HOUR <= status.lag_seconds < 10 * HOUR + 1300
        assert status.time_to_loss_seconds == 24 * HOUR - status.lag_seconds
        await run(world, app)
        status = await status_of(world, app, look_into_stream=look_into_stream)
        assert status.lag_seconds < (60 if look_into_stream else 1300)
        assert noted(world) == {"seen", "unread"}

    run_virtually(scenario)


# -- policies --------------------------------------------------------------------------------------


def test_to_resume_is_recorded_in_the_cursor_and_aggregates_need_a_rebuild():
    async def scenario():
        world, app = make_world(), make_app(counts=True, on_loss="resume")
        await read_and_stop_for(world, app, 60)
        before = world.clock.time()
        await run(world, app, process=Process("worker", clock=world.clock))
        (shard,) = world.control.shards(TABLE)
        assert before <= lost_at(world)[shard["id"]] <= world.clock.time()
        (consumer,) = control_items(world, "consumer")
        assert consumer["_sk_rebuild"] == {"SS": ["Things"]}
        async with world.clients() as aws:
            status = await read_status(app, aws, clock=world.clock)
        assert status.lost_shards == (shard["id"],)

    run_virtually(scenario)


def test_a_hook_is_called_until_it_succeeds_and_then_never_again():
    async def scenario():
        calls = []

        async def mend(loss, table):
            calls.append((loss, await table.get(Note.key(name="seen"))))
            if len(calls) < 3:
                raise OSError("the other system is down")

        world, app = make_world(), make_app(on_loss=mend)
        await read_and_stop_for(world, app, 60)
        await run(world, app)
        assert noted(world) == {"seen", "late"}
        loss, note = calls[-1]
        assert len(calls) == 3
        assert note == Note(name="seen")
        assert loss.since < loss.until
        assert loss.since.tzinfo is not None
        await run(world, app)
        assert len(calls) == 3

    run_virtually(scenario)


def test_nothing_is_read_past_a_loss_while_its_hook_fails_and_the_worker_can_be_stopped():
    async def scenario():
        async def fail(loss, table):
            raise OSError("the other system is down")

        world, app = make_world(), make_app(on_loss=fail)
        await read_and_stop_for(world, app, 60)
        await run(world, app)
        assert noted(world) == {"seen"}
        assert lost_at(world) == {}

    run_virtually(scenario)


def test_a_worker_that_dies_between_the_hook_and_its_record_calls_it_again():
    async def scenario():
        calls, process = [], Process("first")

        async def mend(loss, table):
            calls.append(loss.shard)
            process.kill()

        world, app = make_world(), make_app(on_loss=mend)
        await read_and_stop_for(world, app, 60)
        assert not await run(world, app, process=process)
        assert await run(world, app)
        assert len(calls) == 2
        assert noted(world) == {"seen", "late"}

    run_virtually(scenario)


def test_every_crash_while_a_loss_is_passed_over_leaves_it_to_be_reported_or_recorded():
    async def scenario(crash):
        calls = []

        async def mend(loss, table):
            calls.append(loss.shard)

        world, app = make_world(), make_app(on_loss=mend)
        await read_and_stop_for(world, app, 60)
        process = Process("first", crash)
        lived = await run(world, app, process=process)
        assert await run(world, app)
        assert noted(world) == {"seen", "late"}
        assert calls
        assert set(lost_at(world)) == set(calls)
        return lived, process.calls

    _, calls = run_virtually(scenario, None)
    assert calls > 30
    for call in range(4, 32, 7):
        run_virtually(scenario, CrashPoint(call, "before"))
        run_virtually(scenario, CrashPoint(call, "after"))


# -- start positions -------------------------------------------------------------------------------


async def ages(world, *names):
    """Write things an hour apart; return when each was written."""
    times = []
    for name in names:
        put(world, name)
        times.append(world.clock.time())
        await anyio.sleep(HOUR)
    return times


def test_a_consumer_starts_at_the_oldest_record_unless_told_otherwise():
    async def scenario():
        world = make_world()
        await ages(world, "a", "b")
        await run(world, make_app())
        assert noted(world) == {"a", "b"}

    run_virtually(scenario)


def test_a_consumer_that_starts_at_a_moment_takes_in_what_was_made_from_then_on():
    async def scenario():
        world = make_world()
        _, second, _ = await ages(world, "a", "b", "c")
        world.control.split(TABLE)
        await run(world, make_app(start=utc(second)))
        assert noted(world) == {"b", "c"}

    run_virtually(scenario)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_from_latest_nothing_is_lost_however_early_the_first_worker_dies(moment):
    async def scenario(crash):
        world, app = make_world(), make_app(start="latest")
        await ages(world, "old")
        process = Process("first", crash)
        lived = await run(world, app, process=process)
        begun = bool(control_items(world, "consumer"))
        world.control.split(TABLE)
        put(world, "new")
        await anyio.sleep(2)
        world.control.roll(TABLE)
        await run(world, app)
        assert noted(world) == ({"new"} if begun else set())
        return lived, process.calls

    _, calls = run_virtually(scenario, None)
    assert calls > 24
    for call in range(2, 24, 3):
        run_virtually(scenario, CrashPoint(call, moment))


def test_children_of_a_shard_that_saw_nothing_start_where_it_did():
    async def scenario():
        world, app = make_world(children_hidden=8.0), make_app(start="latest")
        await ages(world, "old")
        await run(world, app)
        world.control.split(TABLE)
        put(world, *"abcdef")
        await run(world, app)
        assert noted(world) == set("abcdef")
        sinces = {
            c["_sk_since"]["N"]
            for c in control_items(world, "cursor")
            if c["_sk_name"]["S"] != "lister"
        }
        assert len(sinces) == 1

    run_virtually(scenario)


def test_a_start_that_is_changed_later_has_no_effect():
    async def scenario():
        world = make_world()
        await ages(world, "old")
        await run(world, make_app(start="latest"))
        put(world, "new")
        await run(world, make_app(start="trim_horizon"))
        assert noted(world) == {"new"}

    run_virtually(scenario)


def test_aggregates_that_start_late_say_that_they_need_a_rebuild():
    async def scenario(start):
        world = make_world()
        await run(world, make_app(counts=True, start=start))
        (consumer,) = control_items(world, "consumer")
        return consumer.get("_sk_rebuild")

    assert run_virtually(scenario, "latest") == {"SS": ["Things"]}
    assert run_virtually(scenario, "trim_horizon") is None


def test_a_consumer_cannot_start_in_the_future():
    async def scenario():
        world = make_world()
        with pytest.raises(ConfigurationError, match="cannot start in the future"):
            await run(world, make_app(start=utc(world.clock.time() + HOUR)))

    run_virtually(scenario)
