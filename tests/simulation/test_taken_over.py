"""What becomes of the consumer that an app takes over, and what alarms and commands say of it."""

import random
from dataclasses import replace

import pytest

from streamkit import Add, Inserted, Modified
from streamkit.core.tables import open_store
from streamkit.errors import LeaseLost
from streamkit.fleet.cursors import LISTER
from streamkit.fleet.taken import own_store
from streamkit.operate.deletion import delete_consumer
from streamkit.operate.moves.taking_over import take_over
from streamkit.operate.status_page.checks import ready
from streamkit.progress.commit import Batch, Committer
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
    """A client of the table that lets something happen before the next transaction."""

    def __init__(self, client, before):
        self._client, self.before = client, before

    def __getattr__(self, name):
        return getattr(self._client, name)

    async def transact_write_items(self, **request):
        await self.before()
        return await self._client.transact_write_items(**request)


@pytest.mark.parametrize("commits", ["before the end", "after the end"])
def test_the_end_of_a_join_and_a_commit_of_the_consumers_lister_refuse_each_other(
    harness_of, commits
):
    """It would make a cursor for a new root, on which the app runs the handler, too."""
    harness = harness_of(app_of(), shards=1, settings=OFTEN)
    taken_on_all_shards(harness)

    async def ends(aws):
        own = own_store(await open_store(app_of(), aws), "follow")
        rng, tables = random.Random(0), {own.space.schema.name: own.space.schema}
        lister = Committer(aws.dynamodb, own.space, await own.read(LISTER), tables, rng)

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


def delete(harness, consumer):
    clock = harness.world.clock
    harness.advance("1m")
    harness.operate(lambda aws: delete_consumer(aws, "Deeds", consumer, clock=clock))
