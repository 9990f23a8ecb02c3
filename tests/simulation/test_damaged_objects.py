"""No command misses what an object had that is damaged or missing, if the stream still has it."""

import gzip

import pytest

from streamkit.archive.link import Link
from streamkit.errors import RetentionLost
from streamkit.operate.past.past import open_past
from streamkit.operate.restore.target import TABLE
from streamkit.operate.rewind import RewindRefused
from streamkit.testing.archives import MemoryArchive
from tests.simulation.archived import SELDOM, app_of, copied
from tests.simulation.test_archive import erase, rewound
from tests.simulation.test_archive_history import history
from tests.simulation.test_restore import TARGET, clear, now, restored, there, write

YOUNG = (2, 3, 4)
"""The notes of the shard in which an object is damaged."""


@pytest.fixture
def harness(harness_of):
    app = app_of(MemoryArchive(), on_loss="resume")
    return harness_of(app, shards=1, settings=SELDOM, others=[TARGET])


def lived(harness, which, *, finished, trimmed):
    """Let notes be archived: one yesterday, one in the shard before the last, and three in that.

    Returns:
        A moment before the last shard, what was there then, and the name of one of its objects.
    """
    write(harness, 0, "yesterday")
    harness.settle()
    harness.advance("30h")
    write(harness, 1, "before")
    harness.settle()
    harness.advance("10m")
    harness.roll()
    harness.settle()
    moment, was = now(harness), there(harness, "Notes")
    harness.advance("10s")
    known = {*harness.archive().links}
    for number in YOUNG:
        write(harness, number, "new")
        harness.settle()
        if which != "only" or number == YOUNG[-1]:
            harness.advance("10m")
    if finished:
        harness.roll()
        harness.settle()
    if trimmed:
        harness.advance("30h")
    harness.stop()
    archive = harness.archive()
    fresh = [name for name in archive.links if name not in known]
    full = [n for n in fresh if Link.opened(n, archive.objects[n])[0].count]
    shard = [n for n in fresh if n.rpartition("/")[0] == full[0].rpartition("/")[0]]
    assert len(full) == (1 if which == "only" else len(YOUNG))
    places = {"first": full[0], "middle": full[1:2], "last": full[-1], "only": full[0]}
    return moment, was, shard[-1] if which == "end" else "".join(places[which])


def read(harness):
    """Return the numbers of all notes that a command reads, the oldest first."""
    found = []

    async def work(aws):
        async with open_past(harness.app, aws, harness.world.clock) as (past, _):
            for shard in await past.shards.listed():
                async for page in past.pages(shard):
                    found.extend(record.keys["PK"]["S"] for record in page.records)

    harness.operate(work)
    return [int(key.removeprefix("NOTE#")) for key in found if key.startswith("NOTE#")]


CASES = [
    (which, harm, finished)
    for which in ("first", "middle", "last", "only", "end")
    for harm in ("damage", "remove")
    for finished in (False, True)
    if which != "end" or finished
]


@pytest.mark.parametrize(("which", "harm", "finished"), CASES)
def test_what_the_stream_still_has_is_missed_by_no_command(harness, which, harm, finished):
    moment, was, name = lived(harness, which, finished=finished, trimmed=False)
    getattr(harness.archive(), harm)(name)
    assert read(harness) == [0, 1, *YOUNG]
    for base in ("", TABLE):
        clear(harness)
        assert restored(harness, moment, base).losses == []
        assert there(harness) == was
    for number in YOUNG:
        found = history(harness, number)
        assert ([one.kind for one in found.sightings], found.whole) == (["inserted"], True)
    erase(harness)
    rewound(harness, moment - 26 * 3600)
    harness.settle()
    assert copied(harness) == [1, *YOUNG]


@pytest.mark.parametrize(("which", "harm"), [(w, h) for w, h, finished in CASES if finished])
def test_what_the_stream_has_forgotten_is_a_loss_that_names_the_object(harness, which, harm):
    moment, was, name = lived(harness, which, finished=True, trimmed=True)
    getattr(harness.archive(), harm)(name)
    with pytest.raises(RetentionLost, match=name):
        read(harness)
    for base in ("", TABLE):
        clear(harness)
        with pytest.raises(RetentionLost, match=name):
            restored(harness, moment, base)
        assert len({*restored(harness, moment, base, allow_loss=True).losses}) >= 1
        assert was.keys() <= there(harness).keys()
    assert not history(harness, YOUNG[0]).whole
    with pytest.raises(RewindRefused, match=name):
        rewound(harness, moment)


def test_a_shard_that_is_trimmed_in_part_is_not_taken_for_a_whole_one(harness):
    """The stream gives its oldest record, and does not say that there were older ones."""
    write(harness, 0, "yesterday")
    harness.settle()
    harness.roll()
    harness.settle()
    known = {*harness.archive().links}
    for number in (1, 2):
        write(harness, number, "new")
        harness.settle()
        harness.advance("3h")
    harness.advance("19h")
    harness.stop()
    archive = harness.archive()
    name = next(n for n in archive.links if n not in known)
    assert b"NOTE#1" in gzip.decompress(archive.objects[name])
    archive.damage(name)
    with pytest.raises(RetentionLost, match=name):
        read(harness)
