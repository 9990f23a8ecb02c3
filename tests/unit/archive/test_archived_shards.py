"""What an archive says of itself is true whatever else is in its folders, and what rules removed."""

import msgspec
import pytest

from streamkit.archive.link import ORIGIN
from streamkit.archive.shards import ArchivedShards, DamagedArchive
from streamkit.errors import ConfigurationError
from streamkit.stream.lineage import Shard
from streamkit.testing.archives import MemoryArchive
from tests.unit.archive.test_links import lines_of

ABOUT = "T/now/archive.json"
FIRST = 1_700_000_000
"""When record 0 was created; each one comes a second later."""


def at(number):
    return f"{number:040}"


@pytest.fixture
async def archive():
    """An archive of a shard and its two children, each with three records, and an idle link."""
    archive = ArchivedShards(MemoryArchive(), "T/now")
    await archive.begin(FIRST - 500)
    for number, (shard, parent) in enumerate({"p": None, "a": "p", "b": "p"}.items()):
        await archive.note(shard, parent)
        chain, begin = archive.chain(shard), 10 * number
        await chain.add(chain.link(ORIGIN, at(begin + 1)))
        records = lines_of(begin + 2, begin + 3, begin + 4)
        await chain.add(chain.link(at(begin + 1), at(begin + 4)), records)
    return archive


@pytest.mark.parametrize(
    "folder",
    ["", "root/", "p/", "p/a/", "p/a/b", "p/.DS_Store", "root/.nfs0001", ".git/a", "p/note.txt"],
)
async def test_folders_and_what_else_lies_in_the_lineage_are_no_shards(archive, folder):
    archive.objects.objects[f"T/now/lineage/{folder}"] = b""
    assert sorted(await archive.children("p")) == ["a", "b"]
    everything = [Shard("a", "p"), Shard("b", "p"), Shard("p", None)]
    assert sorted(await archive.shards(), key=lambda shard: shard.id) == everything


@pytest.mark.parametrize("body", [b"", b'{"format":1,"began":', b"[]", b'{"began":"x"}', b"\xff"])
async def test_an_archive_that_says_nothing_readable_of_itself_is_named_with_what_to_do(
    archive, body
):
    archive.objects.objects[ABOUT] = body
    for ask in (archive.began(), archive.begin(0.0)):
        with pytest.raises(DamagedArchive, match=f"{ABOUT} is damaged.*older version, or remove"):
            await ask


async def test_an_archive_of_another_format_is_not_called_damaged(archive):
    archive.objects.objects[ABOUT] = b'{"format":"2","codec":"jsonl.gz","began":1}'
    with pytest.raises(ConfigurationError, match="another version has begun it") as refused:
        await archive.begin(0.0)
    assert not isinstance(refused.value, DamagedArchive)


async def begun_again(archive):
    """Return when an archive began, without and with what the writer writes again."""
    without = await archive.began()
    await archive.begin(FIRST + 1000.0)
    about = msgspec.json.decode(archive.objects.objects[ABOUT])
    assert about == {"format": 1, "codec": "jsonl.gz", "began": await archive.began()}
    return without, about["began"]


async def test_an_archive_whose_beginning_a_rule_has_removed_begins_with_what_is_left(archive):
    archive.objects.remove(ABOUT)
    assert await begun_again(archive) == (FIRST + 2, FIRST + 2)


async def test_where_a_parent_has_no_record_any_more_its_children_say_where_the_archive_begins(
    archive,
):
    archive.objects.remove(ABOUT)
    archive.objects.remove(archive.chain("p").name(at(1)))
    archive.objects.damage(archive.chain("a").name(at(11)))
    assert await begun_again(archive) == (FIRST + 22, FIRST + 22)


async def test_where_only_children_are_left_they_say_where_the_archive_begins(archive):
    for name in (ABOUT, "T/now/lineage/root/p", archive.chain("p").name(at(1))):
        archive.objects.remove(name)
    assert await begun_again(archive) == (FIRST + 12, FIRST + 12)


async def test_an_archive_of_which_no_record_is_left_begins_anew(archive):
    for name in [ABOUT, *archive.objects.links]:
        archive.objects.remove(name)
    assert await begun_again(archive) == (None, FIRST + 1000)
