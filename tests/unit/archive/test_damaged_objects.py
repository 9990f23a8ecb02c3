"""What a damaged or missing object had is read from the stream; without that it is a loss."""

import gzip
from dataclasses import dataclass

import msgspec
import pytest
from botocore.exceptions import ClientError
from structlog.testing import capture_logs

from streamkit.archive.chain import Chain
from streamkit.archive.completeness import beginning
from streamkit.archive.link import BEYOND, Link
from streamkit.archive.shards import ArchivedShards
from streamkit.errors import RetentionLost
from streamkit.progress.control import Cursor
from streamkit.testing.archives import MemoryArchive
from tests.streams import ShortStream, at
from tests.unit.archive.test_links import lines_of
from tests.unit.archive.test_long_reader import LATER, Asked, reader

BORDERS = {"first": (0, 2), "middle": (2, 4), "last": (4, 6), "only": (0, 6)}
"""Where an object begins and ends in its chain; the chain of the only one has no other."""
HARMS = [
    (which, harm)
    for which in BORDERS
    for harm in ("damage", "cut", "garble", "remove")
    if (which, harm) != ("only", "remove")
]


async def stored(which, *, finished):
    """Return the chain of a shard with six records, and the name of one of its objects."""
    chain = Chain(MemoryArchive(), "T/now", "s1")
    borders = [BORDERS["only"]] if which == "only" else [*BORDERS.values()][:3]
    for after, last in borders:
        kind = "end" if finished and last == 6 else "data"
        link = msgspec.structs.replace(chain.link(at(after), at(last)), kind=kind)
        await chain.add(link, lines_of(*range(after + 1, last + 1)))
    return chain, chain.name(at(BORDERS[which][0]))


def garble(archive, name):
    """Store records that cannot be read, under a hash that is right, as another program may."""
    link, _ = Link.opened(name, archive.objects[name])
    archive.objects[name] = link.sealed(gzip.compress(b'{"dynamodb": 7}\n{"dyna\n'))[1]


async def read_on(one, tries=30):
    """Read until nothing comes; return the numbers of the records, and the losses."""
    found, lost = [], []
    for _ in range(tries):
        try:
            page = await one.read()
        except RetentionLost as loss:
            lost.append((loss, one._long.lost))
            one.resume(loss)
            continue
        found += [int(record.position) for record in page.records] if page else []
        if one.ended:
            break
    return found, lost


@dataclass
class Case:
    """A reader, with where it begins: commands begin in the archive, workers in the stream."""

    name: str
    position: int
    command: bool


CASES = [Case("command", 0, True), Case("worker", 0, False), Case("worker inside a link", 1, False)]


@pytest.mark.parametrize("trimmed", [False, True], ids=["streamed", "trimmed"])
@pytest.mark.parametrize("finished", [False, True], ids=["open", "finished"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize(("which", "harm"), HARMS)
async def test_the_stream_is_asked_for_what_an_object_had_and_only_its_records_can_be_lost(
    which, harm, case, finished, trimmed
):
    chain, name = await stored(which, finished=finished)
    (garble if harm == "garble" else getattr(MemoryArchive, harm))(chain.objects, name)
    end = 6 if finished else 8
    stream = ShortStream(end, 6 if trimmed else 0, closed=finished, strict=True)
    cursor = Cursor("s1", position=at(6), state="finished" if finished else "active", seen=LATER)

    async def is_whole():
        return not trimmed

    asked = Asked(cursor, over=False)
    begin = at(case.position) if case.position or case.command else "TRIM_HORIZON"
    one = reader(chain, stream, asked, begin, not case.command, is_whole=is_whole)
    if case.command:
        one.begin_in_archive()
    with capture_logs() as logs:
        found, lost = await read_on(one)
    after, last = BORDERS[which]
    gone = range(after + 1, last + 1) if trimmed else ()
    assert found == [n for n in range(case.position + 1, end + 1) if n not in gone]
    assert one.ended is finished
    if not trimmed:
        assert lost == []
    else:
        ((loss, link),) = lost
        inside = case.position > after  # where a removed object began is not known there
        assert (chain.name(link.after) if inside and harm == "remove" else name) in str(loss)
        assert int(link.after) == max(after, case.position)
        assert link.last == (BEYOND if finished and last == 6 else at(last))
    told = [line for line in logs if line["event"] == "archive.unreadable"]
    if case.command and harm != "remove" and not trimmed:
        assert name in told[0]["reason"]


@dataclass
class Throttled(ShortStream):
    """A stream that refuses the first calls for now."""

    refusals: int = 2

    async def get_iterator(self, **where):
        self.refusals -= 1
        if self.refusals >= 0:
            raise ClientError({"Error": {"Code": "ThrottlingException"}}, "GetShardIterator")
        return await super().get_iterator(**where)


@pytest.mark.parametrize("harm", ["damage", "remove"])
async def test_a_call_that_is_throttled_makes_no_loss(harm):
    chain, name = await stored("middle", finished=False)
    getattr(chain.objects, harm)(name)
    one = reader(chain, Throttled(8), Asked(Cursor("s1", position=at(6))), 0, decides=False)
    one.begin_in_archive()
    assert await read_on(one) == ([*range(1, 9)], [])


class HasAll:
    """A stream that has everything, beside an archive."""

    def __init__(self, archive):
        self.archive = archive

    async def has(self, shard, after):
        return True


async def no_cursors():
    return {}


@pytest.mark.parametrize("harm", [MemoryArchive.damage, garble])
async def test_a_hole_is_final_whatever_the_stream_has(harm):
    archive = ArchivedShards(MemoryArchive(), "T/now")
    await archive.begin(1.0)
    await archive.note("s1", None)
    chain = archive.chain("s1")
    hole = msgspec.structs.replace(chain.link(at(0), at(2)), kind="hole", reason="trimmed")
    await chain.add(hole)
    await chain.add(chain.link(at(2), at(4)), lines_of(3, 4))
    await chain.add(chain.link(at(4), at(6)), lines_of(5, 6))
    harm(archive.objects, chain.name(at(2)))
    (lack,) = (await beginning(HasAll(archive), no_cursors, 0.0, 1.0)).lacks
    assert "trimmed" in lack
