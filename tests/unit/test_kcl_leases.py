"""What a KCL's leases come to: which shards are finished, read on, or left for later."""

import pytest

from streamkit.operate.moves.leases import LATEST, SHARD_END, TRIM_HORIZON, Lease, positions
from streamkit.progress.control import START
from streamkit.stream.lineage import Shard

NUMBER = "300000000000000499659"
OLD, NEW, LEFT, RIGHT = (
    Shard("old"),
    Shard("new", "old"),
    Shard("left", "new"),
    Shard("right", "new"),
)
LINE = (OLD, NEW, LEFT, RIGHT)


def read(listed, checkpoints, *, gone=(), caught_up=0, parents=None):
    leases = {
        shard: Lease(shard, checkpoint, parent=(parents or {}).get(shard))
        for shard, checkpoint in checkpoints.items()
    }
    return positions(
        listed, leases, gone=frozenset(gone), generation=1, caught_up=caught_up, now=100
    )


def states(found):
    assert not found.reasons
    return {
        cursor.name: cursor.state if cursor.finished else cursor.position
        for cursor in found.cursors
    }


def test_checkpoints_become_positions_and_ends_become_finished_cursors():
    found = read(LINE, {"old": SHARD_END, "new": SHARD_END, "left": NUMBER, "right": TRIM_HORIZON})
    assert states(found) == {
        "old": "finished",
        "new": "finished",
        "left": NUMBER.zfill(40),
        "right": START,
    }
    made = {cursor.name: cursor for cursor in found.cursors}
    assert made["new"].children == {"left", "right"}
    assert (made["left"].parent, made["left"].root) == ("new", "old")
    assert made["right"].root == "right"


def test_a_shard_whose_lease_was_deleted_is_finished_if_younger_ones_were_begun():
    assert states(read(LINE, {"left": NUMBER, "right": NUMBER})) == {
        "old": "finished",
        "new": "finished",
        "left": NUMBER.zfill(40),
        "right": NUMBER.zfill(40),
    }


def test_the_child_of_a_finished_shard_is_left_to_its_parents_cursor():
    found = read(LINE, {"old": SHARD_END, "new": SHARD_END, "left": NUMBER})
    assert "right" not in states(found)
    assert not found.notes


def test_a_child_waits_while_its_parent_is_read():
    assert states(read((OLD, NEW), {"old": NUMBER, "new": TRIM_HORIZON})) == {
        "old": NUMBER.zfill(40)
    }


def test_a_child_that_was_begun_before_its_parent_was_finished_is_refused():
    (reason,) = read((OLD, NEW), {"old": NUMBER, "new": NUMBER}).reasons
    assert "new was begun before old" in reason


def test_a_shard_without_any_lease_in_its_line_is_read_and_said():
    found = read((OLD, Shard("other")), {"old": NUMBER})
    assert states(found) == {"old": NUMBER.zfill(40)}
    assert found.notes == ("other has no lease: it is read from its oldest record",)


def test_latest_needs_a_moment_from_which_changes_count():
    (reason,) = read((OLD,), {"old": LATEST}).reasons
    assert "--caught-up-at" in reason
    (cursor,) = read((OLD,), {"old": LATEST}, caught_up=70).cursors
    assert (cursor.position, cursor.since) == (START, 70)


def test_a_checkpoint_of_a_shard_that_is_gone_is_a_loss_and_refused():
    (reason,) = read((NEW,), {"old": NUMBER, "new": TRIM_HORIZON}, gone={"old"}).reasons
    assert "old is gone" in reason


def test_an_unlisted_parent_that_can_still_be_read_is_read_first():
    assert states(read((NEW,), {"old": NUMBER, "new": TRIM_HORIZON})) == {"old": NUMBER.zfill(40)}


def test_a_finished_parent_that_is_not_listed_lets_its_child_begin():
    listed = (Shard("new", "old"),)
    assert states(read(listed, {"old": SHARD_END, "new": TRIM_HORIZON})) == {
        "old": "finished",
        "new": START,
    }


def test_finished_shards_that_are_gone_are_counted_and_left_out():
    found = read((NEW,), {"ancient": SHARD_END, "new": NUMBER}, gone={"ancient"})
    assert states(found) == {"new": NUMBER.zfill(40)}
    assert found.notes == ("1 leases are of finished shards that are gone",)


@pytest.mark.parametrize("checkpoint", ["AT_TIMESTAMP", "-1", "9" * 41])
def test_what_is_no_checkpoint_is_refused(checkpoint):
    (reason,) = read((OLD,), {"old": checkpoint}).reasons
    assert "is no checkpoint" in reason


def test_leases_of_another_stream_are_refused():
    reasons = read((OLD,), {"elsewhere": SHARD_END}, gone={"elsewhere"}).reasons
    assert reasons == ("none of the leases is of a shard of this stream",)
