"""An archive is the stream, longer: what was written to it is read when the stream has forgotten."""

import gzip
import itertools
import json

from streamkit import Add, App, Entity, Inserted, Put
from streamkit.archive.link import Link
from streamkit.operate.consumers import pause_consumer, resume_consumer
from streamkit.testing.archives import MemoryArchive


class Note(Entity, pk="NOTE#{number}", sk="NOTE#{number}"):
    number: int


class Copy(Entity, pk="COPY#{number}", sk="COPY#{number}"):
    number: int
    times: int = 0


def app_of(archive, **options):
    app = App("notes", table="Notes", archive=archive, **options)

    @app.on
    def copy(change: Inserted[Note]) -> Put[Copy]:
        return Put(Copy(number=change.new.number))

    return app


def links(archive):
    found = []
    for name, stored in sorted(archive.objects.items()):
        if "/shards/" in name:
            found.append(Link.opened(name, stored)[0])
    return found


def numbers(archive):
    """Return the numbers of the notes that an archive has, in the order of its links."""
    found = []
    for name, stored in sorted(archive.objects.items()):
        if "/shards/" in name:
            for line in gzip.decompress(stored).splitlines():
                keys = json.loads(line)["dynamodb"]["Keys"]["PK"]["S"]
                assert not keys.startswith("_sk#")
                if keys.startswith("NOTE#"):
                    found.append(int(keys.removeprefix("NOTE#")))
    return found


def put(harness, *some):
    harness.put(*(Note(number=n) for n in some))


def copied(harness):
    return sorted(one.number for one in harness.scan(Copy))


def chains_are_whole(archive):
    """Whether each link begins where the one before it ends; return the kinds of links."""
    found = {}
    for link in links(archive):
        found.setdefault(link.shard, []).append(link)
    for chain in found.values():
        assert all(one.last == two.after for one, two in itertools.pairwise(chain))
        assert chain[0].after == "0" * 40
    return [link.kind for chain in found.values() for link in chain]


def test_a_writer_copies_the_applications_records_and_none_of_streamkits(harness_of):
    archive = MemoryArchive()
    harness = harness_of(app_of(archive))
    put(harness, *range(20))
    harness.settle()
    harness.advance("10m")
    assert sorted(numbers(archive)) == list(range(20))
    assert set(chains_are_whole(archive)) == {"data"}
    assert copied(harness) == list(range(20))


def test_all_that_was_written_is_copied_over_splits_and_rolls(harness_of):
    archive = MemoryArchive()
    harness = harness_of(app_of(archive))
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
    harness = harness_of(app_of(archive))
    put(harness, 1)
    harness.settle()
    harness.crash()
    put(harness, 2)
    harness.settle()
    harness.advance("10m")
    assert sorted(numbers(archive)) == [1, 2]
    chains_are_whole(archive)


def test_records_that_were_trimmed_before_they_were_copied_are_a_hole(harness_of):
    archive = MemoryArchive()
    harness = harness_of(app_of(archive, on_loss="resume"), shards=1)
    put(harness, 1)
    harness.settle()
    harness.advance("10m")
    harness.stop()
    put(harness, 2)
    harness.advance("30h")
    put(harness, 3)
    harness.settle()
    harness.advance("10m")
    assert numbers(archive) == [1, 3]
    assert "hole" in chains_are_whole(archive)


def dormant(harness):
    """Pause the app's own consumer, while its archive is written."""
    harness.operate(lambda aws: pause_consumer(harness.app, aws))
    harness.advance("10m")


def awake(harness):
    harness.operate(lambda aws: resume_consumer(harness.app, aws))
    harness.advance("10m")
    harness.settle()


def test_a_weekend_without_the_app_is_made_up_for_from_the_archive(harness_of):
    archive = MemoryArchive()
    harness = harness_of(app_of(archive))
    put(harness, 0)
    harness.settle()
    dormant(harness)
    for number in range(1, 16):
        put(harness, number)
        harness.advance("3h")
        if number % 5 == 0:
            (harness.split if number == 10 else harness.roll)()
    harness.settle()
    assert copied(harness) == [0]
    awake(harness)
    harness.settle()
    assert copied(harness) == list(range(16))
    assert "hole" not in chains_are_whole(archive)


def test_a_change_is_made_once_on_the_border_of_archive_and_stream(harness_of):
    archive = MemoryArchive()
    app = App("notes", table="Notes", archive=archive)

    class Total(Entity, pk="TOTAL", sk="TOTAL"):
        count: int = 0

    @app.on
    def count(change: Inserted[Note]) -> Add[Total]:
        return Add(Total.key(), count=1)

    harness = harness_of(app, shards=1)
    harness.settle()
    dormant(harness)
    for number in range(50):
        put(harness, number)
        harness.advance("30m")
    awake(harness)
    harness.settle()
    assert harness.get(Total.key()).count == 50


def test_a_loss_is_exactly_a_hole_of_the_archive(harness_of):
    archive = MemoryArchive()
    lost = []

    async def note(loss, table):
        lost.append(loss)

    harness = harness_of(app_of(archive, on_loss=note), shards=1)
    put(harness, 1)
    harness.settle()
    harness.advance("10m")
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
