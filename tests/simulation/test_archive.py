"""An archive is the stream, longer: what was written to it is read when the stream has forgotten."""

import gzip
import re
from datetime import UTC, datetime

import pytest
from structlog.testing import capture_logs

from streamkit import Add, App, Inserted
from streamkit.errors import ConfigurationError
from streamkit.operate.inspection import inspect_app
from streamkit.operate.past.archives import verify_archive
from streamkit.operate.rewind import Despite, RewindRefused, rewind
from streamkit.operate.spending import read_spending
from streamkit.operate.status import read_status
from streamkit.testing import every_crash, every_freeze
from streamkit.testing.archives import MemoryArchive
from tests.rigs import Rig
from tests.simulation.archived import (
    RARELY,
    SELDOM,
    Copy,
    Note,
    Total,
    app_of,
    awake,
    chains_are_whole,
    copied,
    dormant,
    links,
    numbers,
    put,
    rare_notes,
)


def counted(app):
    """Let an app count the notes that are made."""

    @app.on
    def count(change: Inserted[Note]) -> Add[Total]:
        return Add(Total.key(), count=1)

    return app


def test_a_writer_copies_the_applications_records_and_none_of_streamkits(harness_of):
    archive = MemoryArchive()
    harness = harness_of(app_of(archive), settings=SELDOM)
    put(harness, *range(20))
    harness.settle()
    harness.advance("30m")
    assert sorted(numbers(archive)) == list(range(20))
    assert set(chains_are_whole(archive)) == {"data"}
    assert copied(harness) == list(range(20))


def test_all_that_was_written_is_copied_over_splits_and_rolls(harness_of):
    archive = MemoryArchive()
    harness = harness_of(app_of(archive), settings=SELDOM)
    for number in range(6):
        put(harness, number)
        harness.settle()
        (harness.split if number % 3 == 0 else harness.roll)()
        harness.advance("20m")
    harness.settle()
    harness.stop()
    assert sorted(numbers(archive)) == list(range(6))
    kinds = chains_are_whole(archive)
    assert kinds.count("end") >= 6
    assert "hole" not in kinds


def test_what_was_not_stored_at_a_crash_is_read_again(harness_of):
    archive = MemoryArchive()
    harness = harness_of(app_of(archive), settings=SELDOM)
    put(harness, 1)
    harness.settle()
    harness.crash()
    put(harness, 2)
    harness.settle()
    harness.advance("30m")
    assert sorted(numbers(archive)) == [1, 2]
    chains_are_whole(archive)


def test_records_that_were_trimmed_before_they_were_copied_are_a_hole(harness_of):
    archive = MemoryArchive()
    harness = harness_of(app_of(archive, on_loss="resume"), shards=1, settings=SELDOM)
    put(harness, 1)
    harness.settle()
    harness.advance("30m")
    harness.stop()
    put(harness, 2)
    harness.advance("30h")
    put(harness, 3)
    harness.settle()
    harness.advance("30m")
    assert numbers(archive) == [1, 3]
    assert "hole" in chains_are_whole(archive)


def test_a_weekend_without_the_app_is_made_up_for_from_the_archive(harness_of):
    archive = MemoryArchive()
    harness = harness_of(app_of(archive), settings=SELDOM)
    put(harness, 0)
    harness.settle()
    dormant(harness)
    for number in range(1, 11):
        put(harness, number)
        harness.advance("4h")
        if number % 5 == 0:
            (harness.split if number == 10 else harness.roll)()
    harness.settle()
    assert copied(harness) == [0]
    awake(harness)
    harness.settle()
    assert copied(harness) == list(range(11))
    assert "hole" not in chains_are_whole(archive)


def test_a_change_is_made_once_on_the_border_of_archive_and_stream(harness_of):
    archive = MemoryArchive()
    app = counted(App("notes", table="Notes", archive=archive))
    harness = harness_of(app, shards=1, settings=SELDOM)
    harness.settle()
    dormant(harness)
    for number in range(20):
        put(harness, number)
        harness.advance("2h")
    awake(harness)
    harness.settle()
    assert harness.get(Total.key()).count == 20


def test_a_loss_is_exactly_a_hole_of_the_archive(harness_of):
    archive = MemoryArchive()
    lost = []

    async def note(loss, table):
        lost.append(loss)

    harness = harness_of(app_of(archive, on_loss=note), shards=1, settings=SELDOM)
    put(harness, 1)
    harness.settle()
    harness.advance("30m")
    harness.stop()
    put(harness, 2)
    harness.advance("30h")
    put(harness, 3)
    harness.settle()
    assert copied(harness) == [1, 3]
    holes = [link for link in links(archive) if link.kind == "hole"]
    assert len(lost) == len(holes)
    for loss, hole in zip(lost, sorted(holes, key=lambda link: link.shard), strict=True):
        assert loss.shard == hole.shard
        assert "they were trimmed before they were archived" in loss.text


# -- crashes and faults ----------------------------------------------------------------------------


def rolled(harness):
    """Write some notes over a roll, with all that is archived in between."""
    put(harness, 1, 2)
    harness.settle()
    harness.roll()
    put(harness, 3)
    for _ in range(2):  # a worker that dies while time passes has a successor
        harness.settle()
        harness.advance("30m")
    archive = harness.archive()
    assert sorted(numbers(archive)) == [1, 2, 3]
    kinds = chains_are_whole(archive)
    assert "hole" not in kinds
    assert copied(harness) == [1, 2, 3]


def of_memory():
    return Rig(app_of(MemoryArchive()), shards=1, settings=RARELY)


def test_a_writer_survives_a_crash_at_any_call():
    assert len([*every_crash(rolled, of_memory, sample=3)]) > 1


def test_a_writer_survives_a_freeze_at_any_call():
    assert len([*every_freeze(rolled, of_memory, sample=2)]) > 1


def counted_of_memory():
    return Rig(counted(app_of(MemoryArchive())), shards=1, settings=RARELY)


def sleep(harness, asleep=dormant):
    """Archive notes of a day and a half, while the app is not read."""
    put(harness, 1)
    harness.settle()
    asleep(harness)
    for number in range(2, 6):
        put(harness, number)
        harness.settle()  # a worker that has died has a successor before the stream forgets
        harness.advance("9h")


def slept(asleep=dormant):
    harness = counted_of_memory()
    sleep(harness, asleep)
    return harness


def read_back(harness):
    """Read from the archive what the stream has forgotten, on the border to the stream."""
    awake(harness)
    harness.settle()
    assert copied(harness) == [1, 2, 3, 4, 5]
    assert harness.get(Total.key()).count == 5


def slept_and_read_back(harness):
    sleep(harness)
    read_back(harness)


def test_a_reader_of_an_archive_finds_what_its_writer_read_before_it_died_without_a_reader():
    """The writer dies while it alone works; another one stores what it has read, and all behind it."""

    def dying(harness):
        dormant(harness)
        harness.crash()

    with slept(dying) as harness:
        read_back(harness)
        assert "hole" not in chains_are_whole(harness.archive())


def test_a_crash_at_any_call_of_a_worker_whose_archive_nobody_reads_is_survived():
    assert [*every_crash(slept_and_read_back, counted_of_memory, sample=2)]


def test_a_reader_of_an_archive_survives_a_crash_at_any_call():
    assert [*every_crash(read_back, slept, sample=2)]


def test_a_reader_of_an_archive_survives_a_freeze_at_any_call():
    assert [*every_freeze(read_back, slept, sample=2)]


# -- what may happen to an archive -----------------------------------------------------------------


@pytest.mark.parametrize("harm", ["damage", "cut", "remove"])
def test_what_happens_to_one_object_costs_exactly_its_records_and_is_named(harness_of, harm):
    archive = MemoryArchive()
    lost = []

    async def note(loss, table):
        lost.append(loss)

    harness = harness_of(app_of(archive, on_loss=note), shards=1, settings=SELDOM)
    harness.settle()
    dormant(harness)
    for number in range(6):
        put(harness, number)
        harness.advance("7h")
    (name,) = [n for n in archive.links if b"NOTE#1" in gzip.decompress(archive.objects[n])]
    gone = {int(n) for n in re.findall(rb'"NOTE#(\d)"', gzip.decompress(archive.objects[name]))}
    getattr(archive, harm)(name)
    awake(harness)
    assert copied(harness) == sorted(set(range(6)) - gone)
    assert len(lost) == 1
    assert name in lost[0].text
    assert lost[0].until <= datetime.fromtimestamp(harness.world.clock.time(), UTC)


def test_an_object_that_is_there_twice_is_read_once(harness_of):
    archive = MemoryArchive()
    app = counted(app_of(archive))
    harness = harness_of(app, shards=1, settings=SELDOM)
    harness.settle()
    dormant(harness)
    for number in range(6):
        put(harness, number)
        harness.advance("7h")
    (name,) = [n for n in archive.links if b"NOTE#1" in gzip.decompress(archive.objects[n])]
    archive.objects[name.replace(".jsonl", "-copy.jsonl")] = archive.objects[name]
    awake(harness)
    assert harness.get(Total.key()).count == 6
    assert copied(harness) == list(range(6))


def about(archive):
    (name,) = [n for n in archive.objects if n.endswith("archive.json")]
    return name


def test_a_writer_goes_on_although_the_archive_says_nothing_readable_of_itself(harness_of):
    archive = MemoryArchive()
    harness = harness_of(app_of(archive), shards=1, settings=SELDOM)
    put(harness, 1)
    harness.settle()
    archive.cut(about(archive))
    with capture_logs() as logs:
        harness.roll()
        put(harness, 2)
        harness.settle()
        harness.advance("1h")
    assert sorted(numbers(archive)) == copied(harness) == [1, 2]
    (said,) = [line for line in logs if line["event"] == "archive.damaged"]
    assert about(archive) in said["reason"]
    with pytest.raises(ConfigurationError, match=r"archive\.json is damaged"):
        harness.operate(lambda aws: verify_archive(harness.app, aws))


def test_a_rewind_reaches_what_is_left_although_a_rule_has_removed_what_said_when_it_began(
    harness_of,
):
    archive = MemoryArchive()
    harness = harness_of(app_of(archive), shards=1, settings=SELDOM)
    moments = rare_notes(harness, 3)
    name = about(archive)
    archive.remove(name)
    before = harness.operate(lambda aws: verify_archive(harness.app, aws)).began
    harness.advance("8h")
    assert name in archive.objects  # it was written again, with a new shard
    after = harness.operate(lambda aws: verify_archive(harness.app, aws)).began
    assert before == after == int(moments[0])
    erase(harness)
    rewound(harness, moments[1] - 60)
    harness.settle()
    assert copied(harness) == [1, 2]


# -- a month ---------------------------------------------------------------------------------------


def rewound(harness, to, **options):
    harness.stop()
    moment = datetime.fromtimestamp(to, UTC)
    clock = harness.world.clock
    return harness.operate(lambda aws: rewind(harness.app, aws, moment, clock=clock, **options))


def erase(harness):
    for one in harness.scan(Copy):
        harness.delete(Copy.key(number=one.number))


def test_a_rewind_goes_as_far_back_as_the_archive(harness_of):
    harness = harness_of(app_of(MemoryArchive()), shards=1, settings=SELDOM)
    moments = rare_notes(harness, 3)
    harness.stop()
    erase(harness)
    rewound(harness, moments[1] - 60)
    harness.settle()
    assert copied(harness) == [1, 2]


def test_a_rewind_is_refused_where_verification_finds_a_gap(harness_of):
    archive = MemoryArchive()
    harness = harness_of(app_of(archive, on_loss="resume"), shards=1, settings=SELDOM)
    moments = rare_notes(harness, 3)
    harness.stop()
    verify = lambda: harness.operate(lambda aws: verify_archive(harness.app, aws))  # noqa: E731
    clean = verify()
    assert clean.whole
    assert (clean.records >= 3, clean.open) == (True, 1)
    with pytest.raises(RewindRefused, match="the archive begins at"):
        rewound(harness, moments[0] - 86_400)
    (name,) = [n for n in archive.links if b"NOTE#1" in gzip.decompress(archive.objects[n])]
    archive.damage(name)
    found = verify()
    assert [name in gap.text for gap in found.gaps] == [True]
    assert (found.links, found.shards) == (clean.links - 1, clean.shards)
    with pytest.raises(RewindRefused, match=name):
        rewound(harness, moments[1])
    erase(harness)
    rewound(harness, moments[1], despite=Despite(loss=True))
    harness.settle()
    assert copied(harness) == [2]


def test_the_writer_is_a_consumer_like_others_to_operators_and_is_never_rewound(harness_of):
    harness = harness_of(app_of(MemoryArchive()), settings=SELDOM)
    put(harness, 1)
    harness.settle()
    writer, clock = harness.app.writer, harness.world.clock
    status = harness.operate(lambda aws: read_status(writer, aws, clock=clock))
    assert status.shards
    assert harness.operate(lambda aws: inspect_app(writer, aws)) is not None
    spent = harness.operate(lambda aws: read_spending(harness.app, aws))
    assert [one.consumer for one in spent] == ["notes", "notes.archive"]
    harness.stop()
    with pytest.raises(RewindRefused, match="writes an archive"):
        harness.operate(lambda aws: rewind(writer, aws, None, clock=clock))
