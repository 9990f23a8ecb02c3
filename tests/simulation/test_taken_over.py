"""What becomes of the consumer that an app takes over, and what alarms and commands say of it."""

import random
from dataclasses import replace
from typing import Annotated

import pytest

from streamkit import Add, Aggregate, Inserted, Modified, Table
from streamkit import Count as CountOf
from streamkit.cli.exits import ExitCode
from streamkit.cli.verdicts import verdict
from streamkit.core.tables import open_store
from streamkit.errors import ConfigurationError, LeaseLost
from streamkit.fleet.cursors import LISTER
from streamkit.fleet.generation import newest_generation
from streamkit.fleet.hosting import TAKING_OVER
from streamkit.fleet.taken import own_store
from streamkit.kinds.aggregate.rebuild import rebuild_aggregate
from streamkit.migrate.book.releases import other_releases
from streamkit.operate.deletion import delete_consumer
from streamkit.operate.explanation import explain_item
from streamkit.operate.moves.taking_over import take_over
from streamkit.operate.rewind import RewindRefused, rewind
from streamkit.operate.status import read_status
from streamkit.operate.status_page.checks import ready
from streamkit.progress.commit import Batch, Committer
from streamkit.worker.joined_app import app_as_run
from tests.simulation.joined import OFTEN, Count, Deed, Deeds, app_of, deploy
from tests.simulation.test_taking_over import begin, until_taken


def taken_on_all_shards(harness):
    """Let the app run the handler on all shards, and leave it to a command to end the join."""
    deeds = Deeds(harness)
    deeds.write(*range(6))
    harness.settle()
    begin(harness)
    for _ in range(5):
        deeds.write(*range(8))
        harness.settle()
        harness.advance("10s")
    return deeds


def reports(harness):
    (process,) = harness.worker.workers
    return {one.consumer: one for one in (worker.report for worker in process.workers)}


def is_ready(harness):
    return ready(list(reports(harness).values()), [], 60.0, draining=False)


def test_the_workers_of_a_consumer_that_is_taken_over_end_and_their_process_stays_ready(harness_of):
    harness = harness_of(app_of(), shards=1, settings=OFTEN)
    deeds = taken_on_all_shards(harness)
    assert reports(harness)["deeds.follow"].state == "active"
    assert begin(harness).ended
    harness.advance("1m")
    states = {consumer: one.state for consumer, one in reports(harness).items()}
    assert states == {"deeds": "active", "deeds.follow": "taken over"}
    assert is_ready(harness).ok
    deeds.write(*range(8))
    harness.settle()  # it is idle without that consumer
    deeds.all_done()


def test_no_alarm_comes_of_shards_that_only_the_app_reads(harness_of):
    """Its own lister makes no cursors below a shard that is handed over."""
    harness = harness_of(app_of(), shards=1, settings=OFTEN)
    deeds = taken_on_all_shards(harness)
    for _ in range(3):
        harness.roll()
        deeds.write(*range(8))
        harness.settle()
        harness.advance("10m")
    assert [one.unread for one in reports(harness).values()] == [0, 0]
    assert is_ready(harness).ok


class Client:
    """A client of the table that lets something happen before a transaction."""

    def __init__(self, client, before, at=1):
        self._client, self.before, self.at = client, before, at

    def __getattr__(self, name):
        return getattr(self._client, name)

    async def transact_write_items(self, **request):
        self.at -= 1
        if not self.at:
            await self.before()
        return await self._client.transact_write_items(**request)


def lister_of(aws, own, cursor):
    schema = own.space.schema
    return Committer(aws.dynamodb, own.space, cursor, {schema.name: schema}, random.Random(0))


def test_a_lister_that_knows_nothing_of_a_join_makes_no_cursor_once_it_has_begun(harness_of):
    """It would make that of a new root on which the app runs the handler from its birth."""
    harness = harness_of(app_of(), shards=1, settings=OFTEN)
    Deeds(harness).write(*range(6))
    harness.settle()

    async def begins(aws):
        own = own_store(await open_store(app_of(), aws), "follow")
        lister = lister_of(aws, own, await own.read(LISTER))

        async def dies():
            raise InterruptedError

        hooked = replace(aws, dynamodb=Client(aws.dynamodb, dies, at=2))
        with pytest.raises(InterruptedError):
            await anext(take_over(app_of(), hooked, "follow", clock=harness.world.clock))
        assert (await newest_generation(own)).host == TAKING_OVER
        with pytest.raises(LeaseLost):
            await lister.commit(Batch(replace(lister.cursor, position=f"{9:040d}")))

    harness.operate(begins)


@pytest.mark.parametrize("commits", ["before the end", "after the end"])
def test_the_end_of_a_join_and_a_commit_of_the_consumers_lister_refuse_each_other(
    harness_of, commits
):
    """It would make a cursor for a new root, on which the app runs the handler, too."""
    harness = harness_of(app_of(), shards=1, settings=OFTEN)
    taken_on_all_shards(harness)

    async def ends(aws):
        own = own_store(await open_store(app_of(), aws), "follow")
        lister = lister_of(aws, own, await own.read(LISTER))

        async def commit():
            await lister.commit(Batch(replace(lister.cursor, position=f"{9:040d}")))

        async def nothing():
            pass

        before = commit if commits == "before the end" else nothing
        hooked = replace(aws, dynamodb=Client(aws.dynamodb, before))
        found = await anext(take_over(app_of(), hooked, "follow", clock=harness.world.clock))
        assert found.ended == (commits == "after the end")
        if found.ended:
            with pytest.raises(LeaseLost):
                await commit()

    harness.operate(ends)


def anew():
    """The app with a later handler of the same name."""
    app = app_of("no")

    @app.on(start="2020-01-01")
    async def follow(change: Inserted[Deed] | Modified[Deed]) -> Add[Count]:
        return Add(Count.key(by="anew"), changes=1)

    return app


def test_a_later_handler_of_the_same_name_is_taken_over_where_it_has_come_to(harness_of):
    """The marks of the first join are still in the app's cursors."""
    harness = harness_of(app_of(), shards=1, settings=OFTEN)
    deeds = Deeds(harness)
    deeds.write(*range(6))
    harness.settle()
    until_taken(harness, deeds)
    deploy(harness, app_of("no"))
    harness.stop()
    delete(harness, "deeds.follow")
    deploy(harness, anew())
    assert deeds.counted("anew") == deeds.changes
    for _ in range(20):
        if begin(harness, anew()).ended:
            break
        deeds.write(*range(8))
        harness.settle()
        harness.advance("10s")
        assert deeds.counted("anew") == deeds.changes
    else:
        raise AssertionError("it is never taken over")


def test_neither_consumer_is_deleted_while_one_takes_a_handler_over(harness_of):
    """The app would run the handler twice, or never again where its cursor is handed over."""
    harness = harness_of(app_of(), shards=1, settings=OFTEN)
    deeds = taken_on_all_shards(harness)
    harness.stop()
    for consumer in ("deeds.follow", "deeds"):
        with pytest.raises(ConfigurationError, match="takes follow over from a consumer of its"):
            delete(harness, consumer)
    harness.settle()
    until_taken(harness, deeds)
    deeds.all_done()
    harness.stop()
    delete(harness, "deeds.follow")
    delete(harness, "deeds")


def delete(harness, consumer):
    clock = harness.world.clock
    harness.advance("1m")
    harness.operate(lambda aws: delete_consumer(aws, "Deeds", consumer, clock=clock))


def test_a_stream_that_is_replaced_in_a_join_is_read_by_both_consumers_from_its_beginning(
    harness_of,
):
    """The marks, and what is handed over, are those of the stream before."""
    app = app_of()
    app.on_loss = "resume"
    app.listeners["follow"].on_loss = "resume"
    harness = harness_of(app, shards=1, settings=OFTEN)
    deeds = taken_on_all_shards(harness)
    harness.stop()
    harness.world.control.disable("Deeds")
    harness.world.control.enable("Deeds")
    deeds.write(*range(8))
    harness.settle()
    deeds.all_done()
    until_taken(harness, deeds)
    deeds.all_done()


@pytest.mark.parametrize("ended", [False, True])
def test_commands_know_the_version_that_runs_although_it_declares_the_start(harness_of, ended):
    harness = harness_of(app_of(), shards=1, settings=OFTEN)
    deeds = taken_on_all_shards(harness)
    if ended:
        until_taken(harness, deeds)
        harness.advance("1m")
    clock = harness.world.clock
    assert harness.operate(lambda aws: read_status(app_of(), aws, clock=clock)).current
    assert harness.operate(lambda aws: other_releases(app_of(), aws)) is None
    with pytest.raises(RewindRefused) as refused:
        harness.operate(lambda aws: rewind(app_of(), aws, None, clock=clock))
    said = " ".join(refused.value.reasons)
    assert "follow" in said
    assert "other handlers" not in said


def test_a_handler_that_is_declared_otherwise_meanwhile_is_taken_over_nevertheless(harness_of):
    """Its own consumer begins a generation, and still knows of the join."""
    harness = harness_of(app_of(), shards=1, settings=OFTEN)
    deeds = Deeds(harness)
    deeds.write(*range(6))
    harness.settle()
    begin(harness)
    otherwise = app_of("no")

    @otherwise.on(start="2020-01-01")
    async def follow(change: Inserted[Deed], table: Table) -> None: ...

    deploy(harness, otherwise)
    own = consumer_of(harness, otherwise)
    assert (own.number, own.host) == (3, TAKING_OVER)
    deploy(harness, app_of())
    until_taken(harness, deeds)


def consumer_of(harness, app):
    async def read(aws):
        return await newest_generation(own_store(await open_store(app, aws), "follow"))

    return harness.operate(read)


def test_an_explanation_says_that_the_app_runs_a_handler_that_it_has_taken_over(harness_of):
    harness = harness_of(app_of(), shards=1, settings=OFTEN)
    deeds = taken_on_all_shards(harness)
    deeds.write(1)
    harness.settle()
    assert last_states(harness) == {"deeds": "done", "deeds.follow": "its app's"}
    harness.roll()
    until_taken(harness, deeds)
    deeds.write(1)
    harness.settle()
    assert last_states(harness) == {"deeds": "done", "deeds.follow": "its app's"}


def last_states(harness):
    harness.stop()  # its position is written
    found = harness.operate(lambda aws: explain_item(app_of(), aws, "DEED#1", "DEED", records=True))
    assert {one.consumer for one in found.listening if one.handler == "follow"} == {
        "deeds",
        "deeds.follow",
    }
    return found.sightings[-1].states


def test_nothing_is_wrong_with_a_consumer_that_its_app_has_taken_over(harness_of):
    harness = harness_of(app_of(), shards=1, settings=OFTEN)
    own = app_of().listeners["follow"]

    def status():
        return harness.operate(lambda aws: read_status(own, aws, clock=harness.world.clock))

    taken_on_all_shards(harness)
    assert verdict(status(), alive=True) == (ExitCode.OK, [])
    assert begin(harness).ended
    harness.advance("1m")
    assert status().host == "taken over by its app"
    assert verdict(status(), alive=False) == (ExitCode.OK, [])


def test_an_aggregate_is_rebuilt_while_the_app_takes_a_handler_over(harness_of):
    def counting():
        app = app_of()

        @app.aggregate
        class Deeds(Aggregate[Deed], pk="DEEDS", sk="DEEDS"):
            deeds: Annotated[int, CountOf()] = 0

        return app

    harness = harness_of(counting(), shards=2, settings=OFTEN)
    deeds = Deeds(harness)
    deeds.write(*range(6))
    harness.settle()
    begin(harness, counting())
    clock = harness.world.clock

    async def rebuilt(aws):
        return await rebuild_aggregate(
            await app_as_run(counting(), aws), aws, "Deeds", clock=clock, rng=random.Random(0)
        )

    harness.operate(rebuilt)
    for _ in range(20):
        deeds.write(*range(8))
        harness.settle()
        harness.advance("10s")
        if begin(harness, counting()).ended:
            break
    else:
        raise AssertionError("it is never taken over")
    deeds.write(*range(10))
    harness.settle()
    deeds.all_done()
    assert [item["deeds"] for item in harness.items() if "deeds" in item] == [{"N": "10"}]
