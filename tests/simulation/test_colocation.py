"""A fleet whose processes run listeners: one process reads a shard for all of its consumers."""

from collections import Counter
from typing import Annotated

import anyio

from streamkit import Aggregate, Count, Key
from streamkit.fleet.cursors import LISTER
from streamkit.progress.actions import own_attributes
from streamkit.progress.control import read_cursor
from streamkit.testing.loop import run_virtually
from tests.simulation.crew import BUCKETS, TABLE, Event, Fleet, make_app

CONSUMERS = ("fleet", "fleet.search", "fleet.mail")


def tally_of(by):
    """Return an aggregate of a listener's own."""

    class Copies(Aggregate[Event], pk=f"COPIES#{by}#{{bucket}}", sk="COPIES"):
        bucket: int
        events: Annotated[int, Count()] = 0

        @classmethod
        def group(cls, event: Event) -> Key["Copies"]:
            return cls.key(bucket=event.number % BUCKETS)

    return Copies


def make_listeners():
    app = make_app()
    for name in ("search", "mail"):
        app.listener(name).aggregate(tally_of(name))
    return app


class Processes(Fleet):
    """A fleet of processes, each of which runs all three consumers."""

    def __init__(self, shards=4, *, app=None, **settings):
        super().__init__(shards, app=app or make_listeners(), refereed=False, **settings)

    def owners_of(self, consumer):
        """Return the owner of each of a consumer's unfinished shards."""
        prefix = f"_sk#{consumer}#"
        items = [i for i in self.world.items(TABLE) if i["PK"]["S"].startswith(prefix)]
        cursors = [own_attributes(i) for i in items if i["_sk_kind"] == {"S": "cursor"}]
        found = [read_cursor(item) for item in cursors]
        return {c.name: self.name_of(c.owner) for c in found if c.name != LISTER and not c.finished}

    def together(self, *names):
        """Say whether each open shard has one owner in all consumers, and these share evenly."""
        first, *others = [self.owners_of(consumer) for consumer in CONSUMERS]
        held = Counter(first.values())
        return (
            all(other == first for other in others)
            and first.keys() == self.open_shards()
            and held.keys() == set(names)
            and max(held.values()) - min(held.values()) <= 1
        )

    def readers_since(self, moment):
        """Return the most processes that read one shard since then, and which processes read any at all."""
        reads = {
            shard: {who for at, who in self.reads[shard] if at > moment}
            for shard in self.open_shards()
        }
        return max(map(len, reads.values())), min(map(len, reads.values()))

    async def until_together(self, *names, seconds=90.0):
        took = await self.until(lambda: self.together(*names), seconds)
        moment = self.now
        await anyio.sleep(20)
        assert self.readers_since(moment + 2) == (1, 1)
        assert self.together(*names)
        return took

    async def until_copied(self):
        def copied():
            counted = Counter()
            for item in self.world.items(TABLE):
                if item["PK"]["S"].startswith("COPIES#"):
                    counted[item["PK"]["S"].split("#")[1]] += int(item["events"]["N"])
            return counted == {"search": self.written, "mail": self.written}

        await self.until_tallied()
        await self.until(copied)


def scenario(test):
    """Run a test on a virtual loop."""

    def run():
        run_virtually(test, seed=1)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@scenario
async def test_each_shard_is_read_by_one_process_through_rolls_splits_and_a_death():
    fleet = Processes()
    async with fleet.running("a", "b", "c"):
        fleet.write(100)
        await fleet.until_together("a", "b", "c")
        fleet.world.control.roll(TABLE)
        fleet.write(100)
        await fleet.until_together("a", "b", "c")
        fleet.world.control.split(TABLE, min(fleet.open_shards()))
        fleet.write(100)
        await fleet.until_together("a", "b", "c")
        fleet.lives["a"].process.kill()
        fleet.write(100)
        await fleet.until_together("b", "c")
        await fleet.until_copied()
        fleet.start("d")
        fleet.write(100)
        await fleet.until_together("b", "c", "d")
        await fleet.until_copied()
        most = max(
            sum(1 for at, _ in fleet.describes if t <= at < t + 1) for t, _ in fleet.describes
        )
        assert most <= 10
        assert {status for _, status in fleet.describes} == {200}


@scenario
async def test_a_process_that_runs_a_listener_alone_reads_only_what_no_anchor_reads():
    fleet = Processes(4)
    search = fleet.app.listeners["search"]
    async with fleet.running():
        fleet.start("alone", search)
        fleet.write(50)
        owners = lambda: set(fleet.owners_of("fleet.search").values())  # noqa: E731
        await fleet.until(
            lambda: owners() == {"alone"} and len(fleet.owners_of("fleet.search")) == 4
        )
        fleet.start("a")
        await fleet.until_together("a")
        fleet.lives["a"].process.kill()
        await fleet.until(lambda: owners() == {"alone"})
        await anyio.sleep(60)
        assert owners() == {"alone"}


@scenario
async def test_what_the_first_consumer_reads_in_a_process_without_the_listener_is_read_by_another():
    fleet = Processes(4)
    plain = make_app()
    async with fleet.running():
        fleet.start("plain", plain)
        fleet.start("full")
        fleet.write(50)
        await fleet.until(lambda: set(fleet.owners_of("fleet").values()) == {"plain", "full"})
        await fleet.until(lambda: set(fleet.owners_of("fleet.mail").values()) == {"full"})
        await fleet.until_copied()
