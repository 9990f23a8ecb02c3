"""Workers share the shards of a stream: evenly, one owner each, and no shard waits long for a reader.

Every test looks at the engine's log alone. The referee in `crew` also checks each call: fencing,
positions and leases.
"""

import anyio
import pytest

from streamkit import App, Change, Entity, Put
from streamkit.settings import Settings
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from tests.seeds import seeds
from tests.simulation.crew import TABLE, Event, Fleet, Tally

THREE = ("a", "b", "c")
LEASE_AND_HEARTBEAT = Settings().lease + Settings().heartbeat


def run(main, *arguments, seed=0):
    with repeatable(seed):
        run_virtually(main, *arguments, seed=seed)


async def settled(fleet, *names):
    """Wait until the shards are shared, and every worker has looked at the fleet again."""
    await fleet.until_even(*names)
    await anyio.sleep(10)


class Seen(Entity, pk="SEEN#{number}", sk="SEEN#{number}"):
    number: int


# -- together --------------------------------------------------------------------------------------


async def together(keys):
    fleet = Fleet(8, keys=keys)
    async with fleet.running(*THREE):
        fleet.write(100)
        await fleet.until_even(*THREE, seconds=5)
        await fleet.until_tallied()
        since = fleet.now
        await anyio.sleep(35)
        assert fleet.moves(since) == []
        assert fleet.all_read(fleet.now - 2)


@pytest.mark.parametrize("keys", [("PK", "SK"), ("PK",)], ids=["sort key", "simple key"])
@pytest.mark.parametrize("seed", range(2))
def test_workers_started_together_share_the_shards_evenly_and_then_move_none(seed, keys):
    run(together, keys, seed=seed)


# -- one goes --------------------------------------------------------------------------------------


async def stopped():
    fleet = Fleet(8)
    async with fleet.running(*THREE):
        await settled(fleet, *THREE)
        fleet.write(100)
        since = fleet.now
        fleet.lives["b"].worker.stop()
        took = await fleet.until(lambda: fleet.all_read(since, without=("b",)))
        assert took <= 1.0
        await fleet.until_tallied()
        assert len(fleet.moves(since)) <= 3


@pytest.mark.parametrize("seed", seeds(4, least=2))
def test_the_shards_of_a_worker_that_is_stopped_are_read_by_others_within_a_second(seed):
    run(stopped, seed=seed)


async def stopped_of_eight():
    names = [f"w{n}" for n in range(8)]
    fleet = Fleet(16)
    async with fleet.running(*names):
        await fleet.until_even(*names)
        await anyio.sleep(5)
        name = fleet.leader() if fleet.world.rng.random() < 0.5 else "w3"
        since = fleet.now
        fleet.lives[name].worker.stop()
        assert await fleet.until(lambda: fleet.all_read(since, without=(name,))) <= 1.0
        assert len(fleet.moves(since)) == 2


@pytest.mark.parametrize("seed", seeds(4, least=2))
def test_the_shard_of_a_polite_stop_is_taken_within_a_second_in_a_fleet_of_8(seed):
    run(stopped_of_eight, seed=seed)


async def killed(wait):
    fleet = Fleet(8)
    async with fleet.running(*THREE):
        await settled(fleet, *THREE)
        await anyio.sleep(wait)
        fleet.write(100)
        since = fleet.now
        fleet.lives["b"].process.kill()
        took = await fleet.until(lambda: fleet.all_read(since + 0.01, without=("b",)))
        assert took <= LEASE_AND_HEARTBEAT
        await fleet.until_tallied()


async def gaps(found, wait, settings):
    fleet = Fleet(8, **settings)
    fleet.world.replicas.answer = lambda call, apply: apply()
    async with fleet.running(*THREE):
        await fleet.until_even(*THREE)
        await anyio.sleep(10 + wait)
        since = fleet.now
        fleet.lives["b"].process.kill()
        found.append(await fleet.until(lambda: fleet.all_read(since + 0.01, without=("b",))))


@pytest.mark.parametrize(
    ("settings", "usual", "longest"),
    [({}, 4.0, 5.0), ({"preset": "latency"}, 3.2, 4.0)],
    ids=["default", "latency"],
)
def test_the_shards_of_a_worker_that_is_killed_at_any_moment_are_read_soon(
    settings, usual, longest
):
    found, beat = [], Settings(**settings).heartbeat
    for part in range(8):
        run(gaps, found, part * beat / 8, settings, seed=part)
    assert sum(found) / len(found) <= usual
    assert max(found) <= longest, sorted(found)


@pytest.mark.parametrize("seed", seeds(4, least=2))
def test_the_shards_of_a_worker_that_is_killed_are_read_by_others_within_lease_and_heartbeat(seed):
    run(killed, seed * 0.7, seed=seed)


async def frozen():
    fleet = Fleet(8)
    async with fleet.running(*THREE):
        await settled(fleet, *THREE)
        fleet.write(100)
        await anyio.sleep(0.3)
        life, since = fleet.lives["b"], fleet.now
        name = life.worker.name
        life.process.freeze()
        took = await fleet.until(lambda: fleet.all_read(since + 0.01, without=("b",)))
        assert took <= LEASE_AND_HEARTBEAT
        await anyio.sleep(20 - took)
        life.process.thaw()
        await fleet.until_even(*THREE)
        await fleet.until_tallied()
        assert life.worker.name == name


@pytest.mark.parametrize("seed", seeds(4, least=2))
def test_a_worker_that_stood_still_loses_its_shards_and_goes_on_with_an_even_share(seed):
    run(frozen, seed=seed)


# -- some come -------------------------------------------------------------------------------------


async def joined(shards, before, after):
    old, new = [f"old-{n}" for n in range(before)], [f"new-{n}" for n in range(after)]
    fleet = Fleet(shards)
    async with fleet.running(*old):
        await settled(fleet, *old)
        since = fleet.now
        for name in new:
            fleet.start(name)
        await fleet.until_even(*old, *new, seconds=10)
        await anyio.sleep(35)
        assert max(fleet.held().values()) == -(-shards // (before + after))
        # A shard that its claimant gets from a worker that has none to spare moves another one.
        assert len(fleet.moves(since)) <= 2 * after * -(-shards // (before + after))


SHAPES = [(8, 3, 1), (8, 3, 2), (24, 5, 1), (30, 2, 2)]


@pytest.mark.parametrize(("seed", "shape"), list(enumerate(SHAPES)), ids=str)
def test_workers_that_join_get_an_even_share_and_little_else_moves(seed, shape):
    run(joined, *shape, seed=seed)


async def joined_a_worker_with_a_long_lease():
    fleet = Fleet(4, lease=3600)
    async with fleet.running("alone"):
        await settled(fleet, "alone")
        fleet.start("second")
        await fleet.until_even("alone", "second", seconds=15)
        since = fleet.now
        fleet.lives["second"].worker.stop()
        await fleet.until_even("alone", seconds=10)
        assert fleet.now - since <= 2  # what it gave away comes back at once, too


def test_a_worker_that_was_alone_shares_soon_however_long_its_lease_and_takes_what_comes_back():
    run(joined_a_worker_with_a_long_lease, seed=0)


# -- the lineage goes on ---------------------------------------------------------------------------


async def rolled(workers):
    names = [f"w{n}" for n in range(workers)]
    fleet = Fleet(16)
    async with fleet.running(*names):
        await settled(fleet, *names)
        since = fleet.now
        for _ in range(2):
            rolled = fleet.now
            fleet.world.control.roll(TABLE)
            fleet.write(20)
            assert await fleet.until(lambda at=rolled: fleet.all_read(at)) <= 5.0
            await anyio.sleep(40)
        assert fleet.moves(since) == []
        await fleet.until_tallied()


@pytest.mark.parametrize("workers", [1, 3, 8])
def test_when_all_shards_roll_no_child_has_another_owner_than_its_parent(workers):
    run(rolled, workers, seed=workers)


async def one_ends(workers):
    names = [f"w{n}" for n in range(workers)]
    fleet = Fleet(12)
    async with fleet.running(*names):
        await settled(fleet, *names)
        shard = min(fleet.open_shards())
        (child,) = fleet.world.control.roll(TABLE, shard)
        ended = await fleet.until(lambda: fleet.finished(shard))
        took = await fleet.until(lambda: fleet.reads[child])
        assert ended <= fleet.settings.poll_ceiling + 0.5
        assert took <= 1.0


@pytest.mark.parametrize("workers", [1, 3, 6])
def test_the_child_of_a_shard_is_read_within_a_second_of_its_end(workers):
    run(one_ends, workers, seed=workers)


async def split():
    fleet = Fleet(9)
    async with fleet.running(*THREE):
        await fleet.until_even(*THREE)
        await anyio.sleep(5)
        fleet.write(30)
        mine = sorted(shard for shard, owner in fleet.owners().items() if owner == "b")
        since = fleet.now
        first = fleet.world.control.split(TABLE, mine[0])
        await fleet.until(lambda: fleet.owners().keys() >= set(first))
        await anyio.sleep(12)
        assert {fleet.owners()[child] for child in first} == {"b"}
        assert fleet.moves(since) == []  # four of ten are no more than a share, rounded up
        fleet.world.control.split(TABLE, mine[1])
        await fleet.until(lambda: fleet.held()["b"] == 5)
        assert fleet.moves(since) == []  # all are where their parents were
        await fleet.until_even(*THREE)
        await anyio.sleep(12)
        moves = fleet.moves(since)
        assert {fleet.name_of(take.before) for take in moves} == {"b"}
        assert 1 <= len(moves) <= 2  # either of the others may take the one that is too many
        await fleet.until_tallied()


@pytest.mark.parametrize("seed", seeds(4, least=2))
def test_a_splits_children_stay_where_their_parent_was_until_claims_share_them(seed):
    run(split, seed=seed)


async def many_end():
    names = [f"w{n}" for n in range(4)]
    fleet = Fleet(200, refereed=False)
    async with fleet.running(*names):
        await settled(fleet, *names)
        fleet.describes.clear()
        since = fleet.now
        fleet.world.control.roll(TABLE)
        await fleet.until(lambda: fleet.all_read(since + 0.01), 20)
        await anyio.sleep(30)
        times = [at for at, _ in fleet.describes]
        assert all(status == 200 for _, status in fleet.describes)
        assert max(sum(at <= t < at + 1 for t in times) for at in times) <= 10
        assert fleet.moves(since) == []


def test_two_hundred_shards_that_end_at_once_take_ten_describes_a_second_at_most():
    run(many_end)


# -- changes that kill -----------------------------------------------------------------------------


async def deadly():
    fleet, deaths = Fleet(2), []
    app = App("fleet", table=TABLE, entities=[Seen])
    app.aggregate(Tally)

    @app.on
    async def seen(change: Change[Event]) -> Put[Seen]:
        if change.new.number == 7:
            victim = fleet.lives[max(fleet.lives)]
            deaths.append(victim.name)
            victim.process.kill()
            await anyio.sleep_forever()
        return Put(Seen(number=change.new.number))

    async with fleet.running():
        fleet.write(20)
        for generation in range(8):
            life = fleet.start(f"w{generation}", app)
            with anyio.move_on_after(40):
                await life.process.dead.wait()
            if not life.process.dead.is_set():
                break
        await anyio.sleep(60)
        items = fleet.world.items(TABLE)
        done = {i["number"]["N"] for i in items if i["PK"]["S"].startswith("SEEN#")}
        assert done == {str(n) for n in range(20)} - {"7"}
        assert fleet.tallied() == 19  # none of its handlers was run, the aggregate neither
        parked = [i for i in items if i.get("_sk_kind") == {"S": "parked"}]
        assert len(parked) == 2  # one for each handler
        assert 2 <= len(deaths) <= 5


@pytest.mark.parametrize("seed", range(2))
def test_a_change_that_kills_its_workers_is_parked_unrun_and_all_others_are_processed(seed):
    run(deadly, seed=seed)


async def unlucky():
    fleet = Fleet(2)
    async with fleet.running():
        for number in range(7):
            life = fleet.start(f"w{number}")
            await anyio.sleep(12)
            life.process.kill()
        fleet.write(10)
        fleet.start("last")
        await fleet.until_tallied()
        assert not [i for i in fleet.world.items(TABLE) if i.get("_sk_kind") == {"S": "parked"}]


def test_kills_on_a_quiet_stream_park_no_change_that_comes_later():
    run(unlucky)
