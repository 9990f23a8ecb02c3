"""An app with an archive, which copies notes, and what tests of archives ask about it."""

import gzip
import itertools
import json

from streamkit import App, Entity, Inserted, Put
from streamkit.archive.link import Link
from streamkit.operate.consumers import pause_consumer, resume_consumer
from streamkit.settings import Settings

RARELY = Settings(poll_ceiling=600, heartbeat=300, lease=750, list_interval=900, look_interval=600)
"""Days pass in seconds: each poll takes a moment, even in virtual time."""
SLOWLY = Settings(
    poll_ceiling=800, heartbeat=700, lease=1500, list_interval=1800, look_interval=1500
)
"""Days pass in two thirds of that; a worker that dies has a successor in half an hour."""
SELDOM = Settings(
    poll_ceiling=800, heartbeat=2400, lease=5000, list_interval=3600, look_interval=3600
)
"""Days pass in a third as many; for as long as nothing happens to workers."""


class Note(Entity, pk="NOTE#{number}", sk="NOTE#{number}"):
    number: int


class Copy(Entity, pk="COPY#{number}", sk="COPY#{number}"):
    number: int
    times: int = 0


class Total(Entity, pk="TOTAL", sk="TOTAL"):
    count: int = 0


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


def rare_notes(harness, count, first=0):
    """Write a note each 14 hours, so that the stream forgets all but two; return when.

    The worker has most of that time off: what it reads in it costs time, and nothing is written.
    """
    moments = []
    for number in range(first, first + count):
        moments.append(harness.world.clock.time())
        put(harness, number)
        harness.settle()
        harness.advance("1h")
        harness.stop()
        harness.advance("13h")
        harness.settle()
    return moments


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


def dormant(harness):
    """Pause the app's own consumer, while its archive is written."""
    harness.operate(lambda aws: pause_consumer(harness.app, aws))
    harness.advance("70m")


def awake(harness):
    harness.operate(lambda aws: resume_consumer(harness.app, aws))
    harness.advance("70m")
    harness.settle()
