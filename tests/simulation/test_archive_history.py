"""The history of an item is every change of it that the archive or the stream has, each once."""

import pytest

from streamkit import Add, App, Modified, became
from streamkit.errors import ConfigurationError
from streamkit.operate.explanation import explain_item
from streamkit.testing.archives import MemoryArchive
from tests.simulation.archived import SELDOM, Copy, Note, Total, app_of, links, put


def history(harness, number, app=None):
    key = f"NOTE#{number}"
    one = app or harness.app
    return harness.operate(lambda aws: explain_item(one, aws, key, key, history=True))


def counted(archive):
    app = app_of(archive)

    @app.on(when=became("times", 3))
    def third(change: Modified[Copy]) -> Add[Total]:
        return Add(Total.key(), count=1)

    return app


def lived(harness):
    """Let an item change over three days, the last time just now, and another one beside it."""
    put(harness, 1, 2)
    harness.settle()
    harness.advance("26h")
    harness.delete(Note.key(number=1))
    harness.roll()
    harness.settle()
    harness.advance("26h")
    put(harness, 1)
    harness.settle()


def test_a_history_reaches_from_the_archive_into_the_stream(harness_of):
    harness = harness_of(app_of(MemoryArchive()), shards=1, settings=SELDOM)
    lived(harness)
    found = history(harness, 1)
    assert [one.kind for one in found.sightings] == ["inserted", "removed", "inserted"]
    assert [one.runs for one in found.sightings] == [("notes/copy",), (), ("notes/copy",)]
    assert {one.origin for one in found.sightings} == {"application"}
    assert {one.states["notes"] for one in found.sightings} <= {"done", "unknown"}
    assert found.sightings[-1].states["notes"] == "done"
    assert found.whole


def test_a_history_of_an_archive_whose_own_record_is_damaged_is_told_as_not_whole(harness_of):
    harness = harness_of(app_of(MemoryArchive()), shards=1, settings=SELDOM)
    lived(harness)
    objects = harness.archive().objects
    (about,) = [name for name in objects if name.endswith("/archive.json")]
    objects[about] = objects[about][:5]
    found = history(harness, 1)
    assert [one.kind for one in found.sightings] == ["inserted", "removed", "inserted"]
    assert not found.whole


def test_a_history_names_what_wrote_a_change_and_which_handlers_it_runs_now(harness_of):
    harness = harness_of(counted(MemoryArchive()), shards=1, settings=SELDOM)
    put(harness, 1)
    harness.settle()
    harness.put(Copy(number=1, times=3))
    harness.settle()
    harness.advance("26h")
    found = harness.operate(
        lambda aws: explain_item(harness.app, aws, "COPY#1", "COPY#1", history=True)
    )
    assert [one.origin for one in found.sightings] == ["handler", "application"]
    assert [one.runs for one in found.sightings] == [(), ("notes/third",)]


@pytest.mark.parametrize("harm", ["damage", "cut", "remove"])
def test_a_history_with_a_gap_says_that_it_is_not_whole(harness_of, harm):
    harness = harness_of(app_of(MemoryArchive()), shards=1, settings=SELDOM)
    lived(harness)
    archive = harness.archive()
    getattr(archive, harm)(archive.links[0])
    assert not history(harness, 1).whole


@pytest.mark.parametrize("left", [0, 1])
def test_a_history_without_the_end_of_a_shard_says_that_it_is_not_whole(harness_of, left):
    """A whole chain that was removed is no different."""
    harness = harness_of(app_of(MemoryArchive()), shards=1, settings=SELDOM)
    lived(harness)
    archive = harness.archive()
    oldest = min(link.shard for link in links(archive))
    chain = [name for name in archive.links if f"/{oldest}/" in name]
    assert len(chain) > 1
    for name in chain[left:]:
        archive.remove(name)
    assert not history(harness, 1).whole


def test_an_app_without_an_archive_has_no_history(harness_of):
    app = App("plain", table="Notes", entities=[Note])
    harness = harness_of(app, shards=1, settings=SELDOM)
    with pytest.raises(ConfigurationError, match="has no archive="):
        history(harness, 1)


def test_a_history_says_what_each_handler_would_make_of_each_change(harness_of):
    """Handlers that may do more than they return are not run, and nothing is written."""
    app = counted(MemoryArchive())
    seen = []

    @app.on
    async def asks(change: Modified[Copy]) -> None:
        seen.append(change.new.number)

    @app.on
    def fails(change: Modified[Copy]) -> Add[Total]:
        raise KeyError(change.new.number) if change.new.times == 3 else OSError

    harness = harness_of(app, shards=1, settings=SELDOM, lenient=True)
    put(harness, 1)
    harness.settle()
    harness.put(Copy(number=1, times=2))
    harness.settle()
    harness.put(Copy(number=1, times=3))
    harness.settle()
    harness.advance("26h")
    seen.clear()
    items = harness.items()
    found = harness.operate(
        lambda aws: explain_item(harness.app, aws, "COPY#1", "COPY#1", history=True)
    )
    made = [one.makes for one in found.sightings]
    not_run = "not run: it may do more than it returns"
    assert made == [
        {},
        {"notes/asks": not_run, "notes/fails": "it fails: OSError"},
        {
            "notes/asks": not_run,
            "notes/fails": "it fails: KeyError",
            "notes/third": "Add Total (count)",
        },
    ]
    assert seen == []
    assert harness.items() == items
    first = harness.operate(
        lambda aws: explain_item(harness.app, aws, "NOTE#1", "NOTE#1", history=True)
    )
    assert [one.makes for one in first.sightings] == [{"notes/copy": "Put Copy"}]
