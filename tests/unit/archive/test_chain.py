"""A chain has one link for each position, whoever stores it, in memory and in a directory."""

import errno
import os
import shutil

import anyio
import msgspec
import pytest
import structlog

from streamkit.archive import DirectoryArchive, directory
from streamkit.archive.answers import WorkerObjects
from streamkit.archive.chain import Chain
from streamkit.archive.link import BEYOND, ORIGIN, DamagedLink
from streamkit.archive.objects import all_names
from streamkit.archive.walk import walk
from streamkit.errors import ConfigurationError
from streamkit.progress.control import START
from streamkit.testing.archives import MemoryArchive
from tests.unit.archive.test_links import lines_of


def at(number):
    return f"{number:040}"


@pytest.fixture(params=["memory", "directory"])
async def objects(request, tmp_path):
    archive = MemoryArchive() if request.param == "memory" else DirectoryArchive(tmp_path / "a")
    async with archive.opened() as opened:
        yield opened


@pytest.fixture
def chain(objects):
    return Chain(objects, "T/now", "s1")


async def grow(chain, *lasts, begin=0):
    """Add links that end at these numbers, each with all numbers up to there."""
    after = begin
    for last in lasts:
        await chain.add(chain.link(at(after), at(last)), lines_of(*range(after + 1, last + 1)))
        after = last


async def test_a_chain_is_followed_from_its_beginning(chain):
    await grow(chain, 3, 5)
    first, _ = await chain.at(START)
    second, _ = await chain.at(first.last)
    assert (first.after, first.last, first.count) == (ORIGIN, at(3), 3)
    assert (second.last, second.count, second.first) == (at(5), 2, 1_700_000_004)
    assert await chain.at(second.last) is None
    assert await chain.positions() == [ORIGIN, at(3)]


async def test_the_link_that_was_stored_first_stays(chain):
    await grow(chain, 3)
    there = await chain.add(chain.link(ORIGIN, at(7)), lines_of(*range(1, 8)))
    assert there.last == at(3)
    assert (await chain.at(START))[0] == there


async def test_of_many_writers_at_once_one_decides(chain):
    found = []

    async def write(last):
        link = await chain.add(chain.link(ORIGIN, at(last)), lines_of(*range(1, last + 1)))
        found.append(link)

    async with anyio.create_task_group() as group:
        for last in range(1, 9):
            group.start_soon(write, last)
    assert len(set(found)) == 1
    assert (await chain.at(START))[0] in found


async def test_the_link_around_a_position_is_the_last_that_begins_before_it(chain):
    await grow(chain, 3, 5)
    assert await chain.around(START) == ORIGIN
    assert await chain.around(at(2)) == ORIGIN
    assert await chain.around(at(3)) == at(3)
    assert await chain.around(at(9)) == at(3)
    assert await chain.next_after(at(1)) == at(3)
    assert await chain.next_after(at(3)) is None


class Finite(MemoryArchive):
    """An archive in memory that lets nobody write for ever."""

    left = 20

    async def create(self, name, body):
        self.left -= 1
        assert self.left, "it is written to for ever"
        return await super().create(name, body)


@pytest.mark.parametrize("last", [5, 8])
@pytest.mark.parametrize("kind", ["hole", "data", "end"])
async def test_nothing_follows_the_end_of_a_chain(last, kind):
    chain = Chain(Finite(), "T/now", "s1")
    await grow(chain, 5)
    end = msgspec.structs.replace(chain.link(at(5), at(last)), kind="end")
    await chain.add(end)
    late = msgspec.structs.replace(chain.link(at(5), BEYOND), kind=kind)
    assert (await chain.extend(late)).last == at(last)
    assert await chain.positions() == [ORIGIN, at(5)]


async def test_a_damaged_link_is_named_and_replaced_only_at_the_tip(chain):
    await grow(chain, 3)
    (name,) = await all_names(chain.objects, "T/now/")
    stored = await chain.objects.read(name)
    assert await chain.objects.replace(name, stored.body[:-1], stored.tag)
    with pytest.raises(DamagedLink, match=name):
        await chain.at(START)
    repaired = await chain.add(chain.link(ORIGIN, at(4)), lines_of(1, 2, 3, 4))
    assert (await chain.at(START))[0] == repaired
    assert repaired.last == at(4)


async def test_a_damaged_link_with_a_successor_ends_where_that_begins(chain):
    await grow(chain, 3, 5)
    stored = await chain.objects.read(chain.name(START))
    assert await chain.objects.replace(chain.name(START), b"", stored.tag)
    there = await chain.add(chain.link(ORIGIN, at(4)), lines_of(1, 2, 3, 4))
    assert (there.after, there.last) == (ORIGIN, at(3))
    with pytest.raises(DamagedLink):
        await chain.at(START)


async def test_a_link_in_another_place_is_damaged(chain):
    await grow(chain, 3)
    stored = await chain.objects.read(chain.name(START))
    other = Chain(chain.objects, "T/now", "s2")
    assert await chain.objects.create(other.name(START), stored.body)
    with pytest.raises(DamagedLink, match="belongs elsewhere"):
        await other.at(START)


async def test_an_object_that_changed_is_not_replaced(objects):
    assert await objects.create("a/b", b"one")
    stored = await objects.read("a/b")
    assert await objects.replace("a/b", b"two", stored.tag)
    assert not await objects.replace("a/b", b"three", stored.tag)
    assert not await objects.replace("a/none", b"three", stored.tag)
    assert (await objects.read("a/b")).body == b"two"
    assert await objects.read("a/none") is None


async def test_all_names_are_listed_in_order(objects):
    for number in range(250):
        assert await objects.create(f"a/{number:03}", b"")
    assert not await objects.create("a/007", b"again")
    assert await all_names(objects, "a/") == [f"a/{n:03}" for n in range(250)]
    assert await all_names(objects, "a/1", "a/198") == ["a/199"]
    assert await all_names(objects, "b/") == []


async def test_a_file_that_was_not_finished_is_no_object(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".unfinished-x").write_bytes(b"half")
    async with DirectoryArchive(tmp_path).opened() as objects:
        assert await all_names(objects, "a/") == []
        await objects.create("a/whole", b"")
        assert await all_names(objects, "a/") == ["a/whole"]


async def test_a_write_waits_for_room_on_the_disk_and_leaves_nothing_there_meanwhile(
    tmp_path, monkeypatch
):
    real, tries, waited = os.fsync, [], []

    def full(descriptor):
        tries.append(descriptor)
        if len(tries) < 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor)

    async def wait(seconds):
        waited.append(seconds)
        assert [path.name for path in (tmp_path / "a").iterdir()] == ["before"]

    async with DirectoryArchive(tmp_path).opened() as opened:
        objects = WorkerObjects(opened, waits=True)
        await objects.create("a/before", b"")
        monkeypatch.setattr(os, "fsync", full)
        monkeypatch.setattr(anyio, "sleep", wait)
        with structlog.testing.capture_logs() as logs:
            assert await objects.create("a/b", b"whole")
        assert waited == [10.0, 10.0]
        assert [log["event"] for log in logs if log["log_level"] == "error"] == ["archive.full"]
        assert (await objects.read("a/b")).body == b"whole"
        tries.clear()
        with pytest.raises(ConfigurationError, match="No space left on device"):
            await objects.try_writing("a/writable")  # `check` says it at once


async def test_a_file_system_without_hard_links_is_refused(tmp_path, monkeypatch):
    def refuse(self, target):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("pathlib.Path.hardlink_to", refuse)
    async with DirectoryArchive(tmp_path).opened() as objects:
        with pytest.raises(ConfigurationError, match="no hard links"):
            await objects.create("a/b", b"")
        with pytest.raises(ConfigurationError, match="no hard links"):
            await objects.try_writing("a/c")
        assert list((tmp_path / "a").iterdir()) == []


@pytest.mark.parametrize("begun", [False, True], ids=["new", "begun"])
async def test_writing_is_tried_in_a_directory_and_nothing_of_it_stays(tmp_path, begun):
    async with DirectoryArchive(tmp_path / "changes").opened() as objects:
        if begun:
            await objects.create("T/archive.json", b"{}")
        before = sorted(tmp_path.rglob("*"))
        await objects.try_writing("T/writable")
        assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("place", ["/proc/changes", "{tmp}/file/changes"])
async def test_a_folder_that_cannot_be_written_is_named_with_what_to_do(tmp_path, place):
    (tmp_path / "file").touch()
    folder = place.format(tmp=tmp_path)
    async with DirectoryArchive(folder).opened() as objects:
        with pytest.raises(ConfigurationError) as raised:
            await objects.try_writing("T/writable")
    assert f"the archive in {folder} cannot be used" in str(raised.value)
    assert "a folder that this process may make, read and write" in str(raised.value)
    assert ".unfinished" not in str(raised.value)


@pytest.mark.parametrize("backwards", [False, True])
async def test_an_object_inside_another_one_is_named_and_none_is_called_missing(
    chain, objects, backwards
):
    await grow(chain, 3, 5)
    await objects.create(chain.name(at(1)), (await objects.read(chain.name(ORIGIN))).body)
    steps = [step async for step in walk(chain, await chain.positions(), backwards=backwards)]
    assert [step.missing for step in steps] == ["", "", ""]
    assert ["belongs elsewhere" in step.text for step in steps] == [False, True, False]


async def test_a_walk_names_where_a_link_is_missing_in_both_directions(chain, objects):
    await grow(chain, 3, 5, 8)
    positions = [ORIGIN, at(5)]
    steps = [step async for step in walk(chain, positions)]
    assert [step.missing for step in steps] == ["", at(3)]
    steps = [step async for step in walk(chain, positions, backwards=True)]
    assert [step.missing for step in steps] == ["", at(3)]


async def test_a_directory_that_is_a_file_is_named_by_every_call(tmp_path):
    place = tmp_path / "notes.txt"
    place.touch()
    async with DirectoryArchive(place).opened() as objects:
        for call in (objects.create("T/a", b""), objects.read("T/a"), objects.names("T/")):
            with pytest.raises(ConfigurationError, match=r"notes\.txt.*Not a directory"):
                await call


async def test_a_folder_that_may_not_be_listed_is_not_an_empty_one(tmp_path, monkeypatch):
    async with DirectoryArchive(tmp_path).opened() as objects:
        await objects.create("T/a", b"")
        assert await objects.names("T/") == ["T/a"]
        assert await objects.names("Other/") == []

        def refused(folder):
            raise PermissionError(errno.EACCES, "Permission denied", folder)

        monkeypatch.setattr(os, "scandir", refused)
        with pytest.raises(ConfigurationError, match="Permission denied"):
            await objects.names("T/")


@pytest.fixture
def synced(monkeypatch):
    """The folders that were made durable, in order."""
    found, sync = [], directory._sync
    monkeypatch.setattr(directory, "_sync", lambda one: found.append(one) or sync(one))
    return found


async def test_new_folders_are_made_durable_with_the_folders_that_name_them(tmp_path, synced):
    root = tmp_path / "new" / "archive"
    async with DirectoryArchive(root).opened() as objects:
        await objects.create("T/shards/a", b"")
        around = [tmp_path, root.parent, root, root / "T", root / "T" / "shards"]
        assert synced == around
        await objects.create("T/shards/b", b"")
        assert synced == [*around, around[-1]]
        shutil.rmtree(root / "T")
        await objects.create("T/shards/b", b"")
        assert synced == [*around, around[-1], *around[2:]]
        await objects.replace("T/shards/b", b"two", (await objects.read("T/shards/b")).tag)
        assert synced == [*around, around[-1], *around[2:], around[-1]]


async def test_folders_that_another_process_has_made_are_made_durable_too(tmp_path, synced):
    (tmp_path / "T" / "shards").mkdir(parents=True)
    async with DirectoryArchive(tmp_path).opened() as objects:
        await objects.create("T/shards/a", b"")
    assert synced == [tmp_path, tmp_path / "T", tmp_path / "T" / "shards"]


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
async def test_the_umask_says_who_may_read_an_archive(tmp_path, mask):
    before = os.umask(mask)
    try:
        async with DirectoryArchive(tmp_path).opened() as objects:
            await objects.create("T/a", b"one")
            created = (tmp_path / "T" / "a").stat().st_mode & 0o777
            await objects.replace("T/a", b"two", (await objects.read("T/a")).tag)
            replaced = (tmp_path / "T" / "a").stat().st_mode & 0o777
    finally:
        os.umask(before)
    assert created == replaced == 0o666 & ~mask


async def test_a_listing_of_one_shard_looks_into_no_other(tmp_path, monkeypatch):
    async with DirectoryArchive(tmp_path).opened() as objects:
        for number in range(3):
            await objects.create(f"T/shards/s{number}/a", b"")
        listed, scan = [], os.scandir
        monkeypatch.setattr(os, "scandir", lambda one: listed.append(str(one)) or scan(one))
        assert await objects.names("T/shards/s1/") == ["T/shards/s1/a"]
        assert listed == [str(tmp_path / "T" / "shards" / "s1")]
        assert len(await objects.names("T/shards/s")) == len(await objects.names("")) == 3
