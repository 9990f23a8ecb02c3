"""Unread shards: what the leader reads for them, and which of them it takes."""

from dataclasses import replace

from tests.unit.fleet.test_coordinator import LEASE, NAMES, Fleet

LISTED = frozenset(NAMES)


async def watched():
    """Return a fleet whose other worker reads all but one shard, and that one; all was looked at.

    The one is the other worker's to take, and it does not take it.
    """
    fleet = Fleet("other")
    await fleet.looks(1)
    one, *rest = sorted(fleet.targets("other", "me", "other"))
    fleet.table.own("other", *rest)
    await fleet.me.audit(LISTED)
    return fleet, one


async def test_the_leader_reads_no_cursor_again_of_a_shard_that_it_reads_or_that_is_over():
    fleet, one = await watched()
    over = next(name for name in NAMES if fleet.table.cursors[name].owner == "other")
    fleet.table.cursors[over] = replace(fleet.table.cursors[over], state="finished")
    await fleet.me.audit(LISTED)
    asked, read = set(), fleet.table.read_many

    async def read_many(names, *, fresh=True):
        asked.update(names)
        return await read(names, fresh=fresh)

    fleet.table.read_many = read_many
    await fleet.me.audit(LISTED)
    assert one in asked
    assert not asked & {over, *fleet.shards.held}
    await fleet.me.audit(LISTED | {"new"})
    assert "new" in asked


async def test_a_shard_that_was_taken_and_lost_since_has_another_lease_to_be_taken():
    fleet, one = await watched()
    fleet.clock.now += LEASE - 1
    fleet.table.own("other", one)
    fleet.table.free(one)
    await fleet.me.audit(LISTED)
    fleet.clock.now += LEASE - 1
    await fleet.me.audit(LISTED)
    assert one not in fleet.shards.taken
    fleet.clock.now += 1
    await fleet.me.audit(LISTED)
    assert one in fleet.shards.taken


async def test_a_shard_of_a_newer_generation_is_counted_and_left_to_that():
    fleet, one = await watched()
    fleet.table.cursors[one] = replace(fleet.table.cursors[one], generation=2)
    fleet.clock.now += LEASE
    await fleet.me.audit(LISTED)
    assert one not in fleet.shards.taken
    assert [cursor.name for cursor in fleet.me.sharing.unread.late] == [one]
