"""What is lost without a writer: readers decide it themselves, once and for all, and never wait."""

import gzip

import pytest

from streamkit.archive.link import BEYOND
from streamkit.operate.past.archives import verify_archive
from streamkit.operate.status import read_status
from streamkit.testing import every_crash, every_freeze
from streamkit.testing.archives import MemoryArchive
from streamkit.testing.every import Stop
from streamkit.testing.stops import THAWS
from streamkit.worker import process
from tests.rigs import Rig
from tests.simulation.archived import (
    RARELY,
    app_of,
    awake,
    chains_are_whole,
    copied,
    dormant,
    links,
    numbers,
    put,
)


@pytest.fixture
def without_writer(monkeypatch):
    """Let workers of the app begin without the archive's."""
    return lambda: monkeypatch.setattr(process, "consumers_of", list)


def losing(archive):
    lost = []

    async def note(loss, table):
        lost.append(loss)

    return app_of(archive, on_loss=note), lost


def losses_are_holes(lost, archive):
    """Whether each loss is a hole that the archive has recorded, and each hole a loss."""
    holes = [link for link in links(archive) if link.kind == "hole"]
    assert sorted(loss.shard for loss in lost) == sorted(hole.shard for hole in holes)
    for loss in lost:
        (hole,) = [hole for hole in holes if hole.shard == loss.shard]
        until = "its end" if hole.last == BEYOND else hole.last.lstrip("0")
        assert f"up to {until} are lost: {hole.reason}" in loss.text


def shards_of(harness):
    status = harness.operate(lambda aws: read_status(harness.app, aws, clock=harness.world.clock))
    return status, [shard.lag for shard in status.shards if shard.state != "finished"]


def forgotten(harness):
    """Write two notes that the stream forgets while nothing runs, and a third one."""
    put(harness, 1)
    harness.settle()
    harness.advance("30m")
    harness.stop()
    put(harness, 2)
    harness.advance("30h")
    put(harness, 3)


def test_a_reader_that_finds_no_writer_records_the_hole_itself(harness_of, without_writer):
    app, lost = losing(MemoryArchive())
    harness = harness_of(app, shards=1, settings=RARELY)
    forgotten(harness)
    without_writer()
    harness.settle()
    harness.advance("2h")
    assert copied(harness) == [1, 3]
    losses_are_holes(lost, harness.archive())
    assert "no worker was alive" in lost[0].text
    chains_are_whole(harness.archive())


def test_a_writer_that_comes_later_goes_on_behind_the_readers_hole(
    harness_of, without_writer, monkeypatch
):
    app, lost = losing(MemoryArchive())
    harness = harness_of(app, shards=1, settings=RARELY)
    forgotten(harness)
    with monkeypatch.context() as patch:
        patch.setattr(process, "consumers_of", list)
        harness.settle()
        harness.advance("2h")
        harness.stop()
    put(harness, 4)
    harness.settle()
    harness.advance("30m")
    assert copied(harness) == [1, 3, 4]
    assert numbers(harness.archive()) == [1, 3, 4]
    chains_are_whole(harness.archive())
    losses_are_holes(lost, harness.archive())


def test_a_shard_that_is_gone_without_a_writer_is_lost_to_its_end(harness_of, without_writer):
    app, lost = losing(MemoryArchive())
    harness = harness_of(app, shards=1, settings=RARELY)
    put(harness, 1)
    harness.settle()
    harness.advance("30m")
    harness.stop()
    put(harness, 2)
    harness.roll()
    harness.advance("50h")
    put(harness, 3)
    without_writer()
    harness.settle()
    harness.advance("2h")
    assert copied(harness) == [1, 3]
    losses_are_holes(lost, harness.archive())
    assert any("up to its end" in loss.text for loss in lost)


def test_until_the_archive_has_decided_the_status_says_so(harness_of, without_writer):
    app, lost = losing(MemoryArchive())
    harness = harness_of(app, shards=1, settings=RARELY)
    forgotten(harness)
    status, lags = shards_of(harness)
    assert lags == ["undecided"]
    assert status.lost_shards == ()
    assert len(status.undecided_shards) == 1
    assert lost == []
    before = dict(harness.archive().objects)
    shards_of(harness)
    assert harness.archive().objects == before, "a command decides nothing"
    harness.settle()
    harness.advance("1h")  # before the next shard begins
    assert shards_of(harness)[1] == ["measured"]
    losses_are_holes(lost, harness.archive())


def test_what_waits_in_the_archive_is_not_lost_to_the_status(harness_of):
    app, lost = losing(MemoryArchive())
    harness = harness_of(app, shards=1, settings=RARELY)
    put(harness, 1)
    harness.settle()
    dormant(harness)
    put(harness, 2)
    harness.advance("40h")
    status, lags = shards_of(harness)
    assert lags == ["archived"]
    assert status.lost_shards == ()
    assert status.lag_seconds == pytest.approx(40 * 3600, abs=60)
    assert status.time_to_loss_seconds is None
    awake(harness)
    assert copied(harness) == [1, 2]
    assert shards_of(harness)[1] == ["measured"]


def test_while_the_writer_lives_only_the_writer_decides(harness_of):
    """It may have read what the stream does not have any more."""
    app, lost = losing(MemoryArchive())
    harness = harness_of(app, shards=1, settings=RARELY)
    forgotten(harness)
    harness.settle()
    harness.advance("30m")
    losses_are_holes(lost, harness.archive())
    assert not any("no worker was alive" in loss.text for loss in lost)


@pytest.mark.parametrize("harm", ["damage", "cut"])
def test_a_damaged_last_object_without_a_writer_costs_what_is_in_it(
    harness_of, without_writer, harm
):
    app, lost = losing(MemoryArchive())
    harness = harness_of(app, shards=1, settings=RARELY)
    put(harness, 1)
    harness.settle()
    dormant(harness)
    put(harness, 2)
    harness.advance("30m")
    harness.stop()
    archive = harness.archive()
    (name,) = [n for n in archive.links if b"NOTE#2" in gzip.decompress(archive.objects[n])]
    for later in archive.links[archive.links.index(name) + 1 :]:
        archive.remove(later)
    getattr(archive, harm)(name)
    harness.advance("40h")
    put(harness, 3)
    without_writer()
    awake(harness)
    harness.advance("2h")
    assert copied(harness) == [1, 3]
    assert len(lost) >= 1
    found = harness.operate(lambda aws: verify_archive(app, aws))
    assert not found.whole


def lost_and_found(harness):
    """Lose a note of a shard that is gone, and one of an open shard, with no writer alive."""
    forgotten(harness)
    harness.settle()
    harness.advance("2h")
    harness.settle()
    assert copied(harness) == [1, 3]
    kinds = chains_are_whole(harness.archive())
    assert "hole" in kinds


def deciding():
    return Rig(app_of(MemoryArchive(), on_loss="resume"), shards=1, settings=RARELY)


def test_a_reader_that_decides_survives_a_crash_at_any_call(without_writer):
    without_writer()
    assert len([*every_crash(lost_and_found, deciding, sample=4)]) > 1


def test_a_reader_that_decides_survives_a_freeze_at_any_call(without_writer):
    without_writer()
    assert len([*every_freeze(lost_and_found, deciding, sample=2)]) > 1


@pytest.mark.parametrize("thaw", THAWS)
def test_nothing_is_read_while_all_is_stopped_by_one_that_stood_still_before_it_began(
    without_writer, thaw
):
    """It would copy what the others lose."""
    without_writer()
    Stop("worker", 0, "before", thaw).play(lost_and_found, deciding)
