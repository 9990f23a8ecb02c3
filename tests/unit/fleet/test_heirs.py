"""The children of a shard are left to the worker that read it to its end, wherever they are assigned."""

from dataclasses import replace

import pytest

from streamkit.progress.control import Cursor
from tests.unit.fleet.test_coordinator import Fleet


def ended(fleet, name, owner):
    """Let a shard end under an owner, with a child that no worker has read."""
    parent = fleet.table.cursors[name]
    child = Cursor(f"{name}c", root=parent.root, parent=name, generation=1)
    fleet.table.cursors[name] = replace(
        parent, owner=owner, state="finished", children=frozenset({child.name})
    )
    fleet.table.cursors[child.name] = child
    fleet.table.members["other"] = replace(fleet.table.members["other"], news=9)


async def shared():
    fleet = Fleet("other")
    await fleet.looks(0.5)
    fleet.table.own("other", *fleet.targets("other", "me", "other"))
    await fleet.looks(1)
    return (
        fleet,
        min(fleet.targets("me", "me", "other")),
        min(fleet.targets("other", "me", "other")),
    )


async def test_who_read_a_shard_to_its_end_takes_the_child_that_is_assigned_to_another():
    fleet, _, theirs = await shared()
    ended(fleet, theirs, "me")
    await fleet.looks(1)
    assert fleet.shards.taken[-1] == f"{theirs}c"


@pytest.mark.parametrize(
    ("state", "left"), [("active", True), ("leaving", False), ("unfit", False), (None, False)]
)
async def test_a_child_is_left_to_who_read_its_parent_as_long_as_that_can_take_it(state, left):
    fleet, mine, _ = await shared()
    del fleet.shards.held[mine]
    ended(fleet, mine, "other")
    if state is None:
        del fleet.table.members["other"]
    else:
        fleet.table.members["other"] = replace(fleet.table.members["other"], state=state)
    await fleet.looks(1)
    assert (f"{mine}c" not in fleet.shards.taken) == left
    if left:
        fleet.silent.add("other")
        await fleet.looks(10)
        assert f"{mine}c" in fleet.shards.taken


async def test_a_child_that_was_read_already_is_whose_it_is_assigned_to():
    fleet, mine, _ = await shared()
    del fleet.shards.held[mine]
    ended(fleet, mine, "other")
    fleet.table.own(None, f"{mine}c")
    await fleet.looks(1)
    assert f"{mine}c" in fleet.shards.taken
