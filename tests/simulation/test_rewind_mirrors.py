"""A rewind of mirrors: each copy is written as its source is now, and never shows an older state."""

from typing import ClassVar

import pytest

from streamkit import App, Entity, Index, Key, Query, Set
from streamkit.core.tables import survey
from streamkit.model.codec import wire_image
from streamkit.operate.rewind import rewind
from streamkit.settings import Settings
from streamkit.stream.listing import list_shards
from streamkit.stream.reader import StreamPages
from streamkit.testing import every_crash
from tests.rigs import Rig

SETTINGS = Settings(poll_ceiling=5, heartbeat=10, lease=30, list_interval=20, look_interval=20)
NOW = {"bug": False}
"""What the mirror does wrong, for the moment."""


class User(Entity, pk="USER#{user}", sk="USER"):
    user: str
    name: str


class Seat(Entity, pk="SEAT#{seat}", sk="SEAT"):
    seat: int
    user: str
    name: str = ""

    by_user: ClassVar = Index("GSI1", pk="SAT#{user}", sk="SEAT#{seat}")


def seats_of(user: User) -> Query[Seat]:
    return Seat.query(index=Seat.by_user, user=user.user)


def user_of(seat: Seat) -> Key[User]:
    return User.key(user=seat.user)


def rig():
    NOW.update(bug=False)
    app = App("seats", table="Seats", entities=[Seat])

    @app.mirror(copies=seats_of, source=user_of)
    def copy_name(user: User, copy: Seat) -> Set[Seat]:
        return Set(copy.item_key, name=user.name.lower() if NOW["bug"] else user.name)

    return Rig(app, settings=SETTINGS)


@pytest.fixture
def harness():
    with rig() as found:
        yield found


def rewound(harness):
    clock = harness.world.clock
    return harness.operate(
        lambda aws: rewind(harness.app, aws, None, lease_seconds=30, clock=clock)
    )


def named(harness):
    """Return the names that the first seat was given, in order, as the stream has them."""

    async def read(aws):
        tables, found = await survey(harness.app, aws), []
        arn, pages = tables.table.stream_arn, StreamPages(aws)
        for shard in (await list_shards(aws, arn)).shards:
            iterator = await pages.get_iterator(
                StreamArn=arn, ShardId=shard.id, ShardIteratorType="TRIM_HORIZON"
            )
            while (page := await pages.get_records(iterator)).records:
                for record in page.records:
                    if str(record.item_key.pk) == "SEAT#1":
                        found.append(wire_image(record.new_image)["name"]["S"])
                iterator = page.next_iterator
        return found

    return harness.operate(read)


def written_with_a_bug(harness):
    """Rename a user twice and move a seat away and back, while the mirror has a bug."""
    NOW.update(bug=True)
    harness.put(User(user="a", name="A1"), User(user="b", name="B1"), Seat(seat=1, user="a"))
    harness.settle()
    harness.put(Seat(seat=1, user="b", name="?"), User(user="a", name="A2"))
    harness.settle()
    harness.put(Seat(seat=1, user="a", name="?"))
    harness.settle()
    harness.stop()
    NOW.update(bug=False)


def test_a_rewound_mirror_mends_each_copy_once_and_shows_no_older_state(harness):
    written_with_a_bug(harness)
    harness.put(User(user="a", name="A3"))
    before = named(harness)
    assert before == ["", "a1", "?", "b1", "?", "a2"]
    rewound(harness)
    harness.settle()
    assert named(harness)[len(before) :] == ["A3"]


def test_a_copy_that_was_moved_and_back_follows_its_source_after_a_rewind(harness):
    written_with_a_bug(harness)
    rewound(harness)
    harness.settle()
    harness.put(User(user="b", name="B2"))
    harness.settle()
    assert harness.get(Seat.key(seat=1)).name == "A2"
    harness.put(User(user="a", name="A4"))
    harness.settle()
    assert harness.get(Seat.key(seat=1)).name == "A4"


def mended(harness):
    """Rewind a mirror and rename its source meanwhile, with a worker that is killed anywhere."""
    written_with_a_bug(harness)
    before = named(harness)
    rewound(harness)
    harness.advance(0.3)
    harness.put(User(user="a", name="A5"))
    harness.settle()
    assert harness.get(Seat.key(seat=1)).name == "A5"
    assert set(named(harness)[len(before) :]) <= {"A2", "A5"}


def test_a_crash_at_any_call_makes_no_rewound_mirror_show_an_older_state():
    assert list(every_crash(mended, rig, sample=12))
