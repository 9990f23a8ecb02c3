"""A reader of an archive decides only what nobody else will, where the chain ends."""

import random

import msgspec
import pytest

from streamkit.archive.chain import Chain
from streamkit.archive.link import BEYOND, ORIGIN
from streamkit.archive.long_pages import ArchiveWriter, LongPages
from streamkit.archive.reader import CopyReader, LongReader
from streamkit.errors import RetentionLost
from streamkit.progress.control import START, Cursor
from streamkit.testing.archives import MemoryArchive
from tests.streams import CREATED, ShortStream, at
from tests.unit.archive.test_links import lines_of

LATER = CREATED + 3 * 86_400


class Clock:
    def time(self):
        return LATER

    def monotonic(self):
        return 0.0


@pytest.fixture
def chain():
    return Chain(MemoryArchive(), "T/now", "s1")


class Asked:
    """The writer of an archive, as readers see it."""

    def __init__(self, cursor=None, over=True):
        self.seen, self.over = cursor, over

    async def cursor(self, shard):
        return self.seen

    async def is_over(self):
        return self.over


def reader(chain, stream, asked, position=START, decides=True, **more):
    writer = ArchiveWriter(asked.cursor, asked.is_over if decides else None)
    begin = Cursor("s1", position=position if isinstance(position, str) else at(position))
    pages = LongPages(stream, chain, "arn", writer, **more)
    return LongReader(pages, "arn", begin, Clock(), random.Random(0), CREATED)


async def loss_of(one, tries=9):
    """Read until a loss is named; None if none is."""
    for _ in range(tries):
        try:
            page = await one.read()
        except RetentionLost as lost:
            return lost
        if page is not None and page.records:
            return None
    return None


async def holes(chain):
    found = [(await chain.at(position))[0] for position in await chain.positions()]
    return [(int(link.after), int(link.last)) for link in found if link.kind == "hole"]


async def test_a_hole_begins_where_the_chain_ends_not_where_the_reader_stands(chain):
    """Else a writer that has read what lies between would be refused, or leave a gap."""
    await chain.add(chain.link(ORIGIN, at(2)), lines_of(1, 2))
    lost = await loss_of(reader(chain, ShortStream(end=9, gone=6), Asked(), position=4))
    assert await holes(chain) == [(2, 6)]
    assert (int(lost.after), "up to 6 are lost" in str(lost)) == (4, True)


async def test_a_shard_that_its_writer_never_saw_is_lost_when_it_is_gone(chain):
    for asked in (Asked(over=True), Asked(over=False)):
        lost = await loss_of(reader(chain, ShortStream(missing=True), asked, position=4))
        assert lost.gone
    assert await chain.positions() == [ORIGIN]
    assert (await chain.at(ORIGIN))[0].last == BEYOND


@pytest.mark.parametrize("missing", [False, True])
async def test_a_command_that_only_looks_decides_nothing(chain, missing):
    """But if neither the stream nor the writer has a shard, nobody will: that is a loss."""
    one = reader(chain, ShortStream(9, 6, missing=missing), Asked(), position=4, decides=False)
    lost = await loss_of(one)
    assert (lost is not None and lost.gone) is missing
    assert one.apart == ("archived" if missing else "undecided")
    assert await chain.positions() == []


async def test_a_shard_without_a_record_is_decided_when_one_comes(chain):
    stream = ShortStream(end=6, gone=6)
    one = reader(chain, stream, Asked(), position=4)
    assert await loss_of(one) is None
    assert await chain.positions() == []
    assert one.seen == 0, "pages of a look say nothing about what was read"
    stream.end = 8
    lost = await loss_of(one)
    assert await holes(chain) == [(0, 6)]
    assert lost.until == CREATED + 7


async def test_behind_its_own_hole_a_reader_goes_on_in_the_stream(chain):
    one = reader(chain, ShortStream(end=9, gone=6), Asked(), position=4)
    one.resume(await loss_of(one))
    assert [int(record.position) for record in (await one.read()).records] == [7, 8, 9]
    assert one.apart == ""


async def test_a_reader_adopts_what_the_writer_has_seen_at_the_same_position(chain):
    """A quiet shard is no loss: the writer has looked at it all the while."""
    await chain.add(chain.link(ORIGIN, at(4)), lines_of(1, 2, 3, 4))
    cursor = Cursor("s1", position=at(4), seen=LATER - 3600)
    one = reader(chain, ShortStream(end=6, gone=5), Asked(cursor, over=False), position=4)
    assert await loss_of(one) is None
    assert int(one.position) == 6
    assert await holes(chain) == []


async def test_what_a_writer_has_seen_elsewhere_says_nothing(chain):
    await chain.add(chain.link(ORIGIN, at(2)), lines_of(1, 2))
    cursor = Cursor("s1", position=at(2), seen=LATER - 3600)
    one = reader(chain, ShortStream(end=6, gone=5), Asked(cursor, over=False), position=4)
    assert await loss_of(one) is None
    assert (one.seen, one.apart) == (0, "undecided")


@pytest.mark.parametrize("position", [START, 1])
async def test_a_reader_stands_where_the_last_link_leads_also_behind_its_last_record(
    chain, position
):
    """streamkit's own records are left out of links, and whoever waits for one waits for ever."""
    await chain.add(chain.link(ORIGIN, at(4)), lines_of(1, 2))
    one = reader(chain, ShortStream(end=4), Asked(), position=position, decides=False)
    one.begin_in_archive()
    assert int((await one.read()).records[-1].position) == int(one.position) == 2
    assert (await one.read()).records == ()
    assert int(one.position) == 4


async def gap(chain, *links, hole=False, until=0.0):
    """Store links between positions, the records of each, and a hole or nothing behind 2."""
    await chain.add(chain.link(ORIGIN, at(2)), lines_of(1, 2))
    if hole:
        lost = msgspec.structs.replace(chain.link(at(2), at(6)), kind="hole", until=until)
        await chain.add(lost)
    for after, last, *records in links:
        await chain.add(chain.link(at(after), at(last)), lines_of(*records) if records else None)


@pytest.mark.parametrize("hole", [False, True], ids=["missing", "hole"])
@pytest.mark.parametrize(
    ("links", "cursor", "until"),
    [
        ([(6, 8, 7, 8)], {}, CREATED + 7),
        ([(6, 8), (8, 9, 9)], {}, CREATED + 9),
        ([], {"position": at(6), "dated": CREATED + 6, "seen": LATER - 60}, CREATED + 6),
        ([], {"position": at(6), "seen": LATER - 60}, LATER - 60),
        ([], {"position": BEYOND, "state": "finished", "ended": LATER - 90}, LATER - 90),
        ([], {"position": at(6)}, LATER),
    ],
    ids=["next link", "a later link", "dated cursor", "cursor", "finished", "now"],
)
async def test_a_loss_that_the_archive_names_says_between_which_moments(
    chain, hole, links, cursor, until
):
    await gap(chain, *links, hole=hole)
    asked = Asked(Cursor("s1", **{"position": at(9)} | cursor), over=False)
    one = reader(chain, ShortStream(end=12, gone=9), asked, decides=False)
    one.begin_in_archive()
    assert [int(record.position) for record in (await one.read()).records] == [1, 2]
    loss = await loss_of(one)
    assert (loss.since, loss.until) == (CREATED + 2, until)
    assert int(loss.after) == 2


async def test_what_bounds_a_loss_for_people_does_not_date_what_is_read_behind_it(chain):
    await gap(chain, hole=True)
    one = reader(chain, ShortStream(end=9, gone=6), Asked(Cursor("s1", position=at(6))))
    one.begin_in_archive()
    await one.read()
    loss = await loss_of(one)
    assert loss.until == LATER
    one.resume(loss)
    assert one.seen == CREATED + 2
    assert [int(record.position) for record in (await one.read()).records] == [7, 8, 9]


async def test_a_writers_loss_begins_behind_what_another_writer_has_stored(chain):
    await chain.add(chain.link(ORIGIN, at(2)), lines_of(1, 2))
    begin = Cursor("s1", since=CREATED)
    one = CopyReader(ShortStream(end=9, gone=6), "arn", begin, Clock(), random.Random(0), CREATED)
    one.go_to(await chain.tip(ORIGIN))
    assert (await loss_of(one)).since == CREATED + 2
