"""What the archive lacks is named where the past is read, and only where the stream lacks it too."""

from dataclasses import replace

import pytest

from streamkit.archive.long_pages import NotDecided
from streamkit.archive.still_streamed import StillStreamed
from streamkit.aws import Aws
from streamkit.errors import RetentionLost
from streamkit.operate.past import shards as past_shards
from streamkit.operate.past.archives import verify_archive
from streamkit.operate.past.past import open_past
from streamkit.operate.restore.target import TABLE, RestoreRefused
from streamkit.stream.listing import Listing, list_shards
from streamkit.testing.archives import MemoryArchive
from tests.simulation.archived import SELDOM, app_of, links, put, rare_notes
from tests.simulation.test_archive_history import history
from tests.simulation.test_restore import TARGET, now, restored, there, write


@pytest.fixture
def harness(harness_of):
    app = app_of(MemoryArchive(), on_loss="resume")
    return harness_of(app, shards=1, settings=SELDOM, others=[TARGET])


def begun(harness):
    """Let one note be archived; return the moment after it, with what was there."""
    write(harness, 1, "one")
    harness.settle()
    harness.advance("1h")
    return now(harness), there(harness, "Notes")


def test_a_hole_up_to_the_end_of_a_shard_is_a_loss_although_its_age_is_not_known(harness):
    moment, was = begun(harness)
    harness.stop()
    harness.advance("1h")
    write(harness, 1, "never archived")
    harness.roll()
    harness.advance("50h")
    write(harness, 3, "later")
    harness.settle()
    harness.advance("2h")
    assert [link.until for link in links(harness.archive()) if link.kind == "hole"] == [0.0, 0.0]
    with pytest.raises(RetentionLost):
        restored(harness, moment, TABLE)
    done = restored(harness, moment, TABLE, allow_loss=True)
    assert sum("trimmed before they were archived" in text for text in done.losses) == 2
    assert there(harness).keys() == was.keys()


def objects_of_today(harness):
    """Let a shard be archived in some objects; then no worker is alive.

    Returns:
        A moment, what was there then, and the names of the objects.
    """
    moment, was = begun(harness)
    harness.advance("10s")
    for number in (2, 3):
        write(harness, number, "new")
        harness.settle()
        harness.advance("10m")
    harness.stop()
    return moment, was, list(harness.archive().links)


@pytest.mark.parametrize("base", ["", TABLE])
def test_what_a_damaged_last_object_had_is_read_from_the_stream(harness, base):
    moment, was, names = objects_of_today(harness)
    write(harness, 1, "changed behind the end")
    harness.archive().damage(names[-1])
    done = restored(harness, moment, base)
    assert there(harness) == was
    assert done.losses == []


def test_a_damaged_only_object_is_read_from_the_stream(harness):
    moment, was, (first, *others) = objects_of_today(harness)
    harness.archive().damage(first)
    for name in others:
        harness.archive().remove(name)
    assert restored(harness, moment, TABLE).losses == []
    assert there(harness) == was


def test_a_damaged_last_object_is_one_loss_once_the_stream_has_forgotten_it(harness):
    moment, was, names = objects_of_today(harness)
    harness.settle()
    harness.advance("30h")
    shard = names[0].rpartition("/")[0]
    last = max(name for name in harness.archive().links if name.startswith(shard))
    assert last > names[-1]
    harness.archive().damage(last)
    with pytest.raises(RetentionLost, match="damaged"):
        restored(harness, moment, TABLE)
    done = restored(harness, moment, TABLE, allow_loss=True)
    assert [text.count("damaged") for text in done.losses] == [1]
    assert there(harness) == was


def emptied(harness):
    """Let a rule remove all links of the oldest shards, whose cursors the writer has forgotten."""
    rare_notes(harness, 7)
    archive = harness.archive()
    for shard in sorted({link.shard for link in links(archive)})[:2]:
        for name in [one for one in archive.links if f"/{shard}/" in one]:
            archive.remove(name)


def test_shards_whose_links_were_removed_are_losses_that_can_be_allowed(harness):
    emptied(harness)
    with pytest.raises(RetentionLost, match=r"up to its end are lost: .* is missing"):
        restored(harness, now(harness) - 3600)
    done = restored(harness, now(harness) - 3600, allow_loss=True)
    assert len(done.losses) == 2
    assert set(there(harness)) == {1, 2, 3, 4, 5, 6}


def test_what_ended_before_a_moment_is_not_missed_after_it(harness):
    emptied(harness)
    moment = now(harness) - 3600
    assert restored(harness, moment, TABLE).losses == []
    assert set(there(harness)) == set(range(7))
    clock = harness.world.clock
    found = harness.operate(
        lambda aws: verify_archive(harness.app, aws, moment - 36_000, clock=clock, sample=5)
    )
    assert found.whole


def test_the_tip_of_a_shard_is_looked_for_in_the_calls_that_workers_leave(harness, monkeypatch):
    moment, _ = begun(harness)
    called, real = [], Aws.get_page

    async def get_page(self, iterator, **more):
        called.append(harness.world.clock.time())
        return await real(self, iterator, **more)

    harness.stop()
    monkeypatch.setattr(Aws, "get_page", get_page)
    restored(harness, moment, TABLE)
    assert len(called) >= 10
    assert len(called) / (called[-1] - called[0]) < 5


REMEMBERED, FORGOTTEN = (3, "up to its end are lost"), (6, "its parent .* is not archived")


def without_lineage(harness):
    """Remove a shard that has records, and what says that it was there; return its name."""
    archive = harness.archive()
    parents = [name.split("/")[-2:] for name in archive.objects if "/lineage/" in name]
    busy = {link.shard for link in links(archive) if link.count}
    parent, shard = next(pair for pair in parents if pair[0] != "root" and pair[1] in busy)
    for name in list(archive.objects):
        if f"/shards/{shard}/" in name or name.endswith(f"/lineage/{parent}/{shard}"):
            archive.remove(name)
    return shard


@pytest.mark.parametrize("base", ["", TABLE])
@pytest.mark.parametrize(("notes", "said"), [REMEMBERED, FORGOTTEN])
def test_a_shard_that_is_missing_with_its_lineage_is_a_loss(harness, base, notes, said):
    """Its archive's writer may have forgotten it, too."""
    moment, _ = begun(harness)
    rare_notes(harness, notes, first=10)
    shard = without_lineage(harness)
    with pytest.raises(RetentionLost, match=said):
        restored(harness, moment, base)
    done = restored(harness, moment, base, allow_loss=True)
    assert [shard in text for text in done.losses] == [True]
    assert not history(harness, 1).whole
    assert not harness.operate(lambda aws: verify_archive(harness.app, aws)).whole


def test_a_shard_is_not_read_forwards_from_its_beginning_if_its_parent_is_missing(harness):
    """A replay reads so: it would say that it has run all changes."""
    moment, _ = begun(harness)
    rare_notes(harness, FORGOTTEN[0], first=10)
    shard = without_lineage(harness)
    names = [name.split("/")[-2:] for name in harness.archive().objects if "/lineage/" in name]
    (child,) = [name for parent, name in names if parent == shard]

    async def read(aws):
        async with open_past(harness.app, aws, harness.world.clock) as (past, _):
            await past.shards.listed()
            await past.reader(child, moment)

    with pytest.raises(RetentionLost, match=FORGOTTEN[1]):
        harness.operate(read)


def test_a_shard_that_only_the_writers_cursor_knows_is_a_loss(harness, monkeypatch):
    """The stream was disabled: a day later it lists no shard any more."""
    moment, _ = begun(harness)
    harness.stop()
    archive = harness.archive()
    for name in list(archive.objects):
        if not name.endswith("/archive.json"):
            archive.remove(name)
    nothing = Listing((), enabled=False)

    async def listed(*_):
        return nothing

    async def gone(*_):
        return True

    async def whole(*_):
        return False

    monkeypatch.setattr(past_shards, "list_shards", listed)
    monkeypatch.setattr(past_shards, "is_gone", gone)
    monkeypatch.setattr(StillStreamed, "is_whole", whole)
    with pytest.raises(RetentionLost, match="are lost"):
        restored(harness, moment)
    assert len(restored(harness, moment, allow_loss=True).losses) == 1


@pytest.mark.parametrize("looks", [3, 1000])
def test_a_shard_that_the_stream_lists_late_is_waited_for(harness, monkeypatch, looks):
    """The table, which is the base, has a change of it already."""
    moment, was = begun(harness)
    harness.stop()
    harness.advance("10s")
    harness.roll()
    write(harness, 1, "two")
    left = [looks]

    async def listed(*arguments):
        found = await list_shards(*arguments)
        left[0] -= 1
        if left[0] < 0:
            return found
        parents = {shard.parent for shard in found.shards}
        early = tuple(shard for shard in found.shards if shard.id in parents)
        return replace(found, shards=early)

    monkeypatch.setattr(past_shards, "list_shards", listed)
    if looks == 1000:
        with pytest.raises(NotDecided, match="does not list what follows shard"):
            restored(harness, moment, TABLE)
        left[0] = 0
    restored(harness, moment, TABLE)  # the same command goes on
    assert there(harness) == was


def test_what_was_trimmed_before_it_was_archived_is_a_gap(harness_of):
    """The archive's writer is away for longer than the stream's day: nobody decides a hole."""
    harness = harness_of(app_of(MemoryArchive()), shards=1, settings=SELDOM)
    put(harness, 1)
    harness.settle()
    harness.advance("30m")
    harness.stop()
    put(harness, 2)
    clock, app = harness.world.clock, harness.app

    def verified():
        return harness.operate(lambda aws: verify_archive(app, aws, clock=clock))

    harness.roll()  # the archive has nothing of the new shard yet
    harness.advance("20h")
    assert verified().whole
    assert history(harness, 1).whole
    harness.advance("10h")
    (gap,) = verified().gaps
    assert "the stream does not reach back to that" in gap.text
    assert not history(harness, 1).whole


def aged(harness, made):
    """Remove what is older than three days, as a rule of the bucket does; `made` has the ages."""
    archive, moment = harness.archive(), now(harness)
    for name in list(archive.objects):
        if made.setdefault(name, moment) < moment - 3 * 86_400:
            archive.remove(name)


def test_what_a_rule_has_removed_day_by_day_is_no_gap_and_the_archive_begins_later(harness_of):
    harness = harness_of(app_of(MemoryArchive()), shards=2, settings=SELDOM, others=[TARGET])
    made, began, clock = {}, [], harness.world.clock
    for number in range(16):
        write(harness, number % 3, str(number))
        harness.settle()
        for _ in range(2):
            harness.advance("6h")
            aged(harness, made)
        found = harness.operate(lambda aws: verify_archive(harness.app, aws, clock=clock))
        assert found.whole
        began.append(found.began)
    assert began == sorted(began)
    assert now(harness) - 4 * 86_400 < began[-1] < now(harness) - 2 * 86_400
    assert restored(harness, now(harness) - 3600).losses == []
    assert there(harness) == there(harness, "Notes")
    with pytest.raises(RestoreRefused, match="the archive begins at"):
        restored(harness, began[-1] - 3600)
