"""Builds: how far the backfill of each aggregate has come. Pure.

    emptying    nothing is counted; what is stored of the aggregate, and parked for it, is deleted
    building    changes are counted by the ledger, see `aggregate.counting`; then all shards do so
    scanning    so is what the table holds
    counting    the scan has ended and the aggregate is right; shards go *live* one by one
    live        every shard is, and the ledger is swept

A build's number is that of the generation that began it, so that it is never used twice. The first
two states begin with a generation's number, because every shard must take the step; the others do
not. Lambda functions have no shards: each invocation counts as the item says when it begins, and a
step waits until earlier invocations have ended. In: the generation's item, the mark of a cursor.
Out: how a shard, or an invocation, counts.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Literal

BuildState = Literal["emptying", "building", "scanning", "counting", "live"]

Mode = Literal["off", "ledger", "live"]
"""How a shard counts: not at all, by the ledger, or by the difference between a change's two
images.
"""

TURN_SECONDS = 3600
"""A shard may go live when it is so much younger than the end of the scan: records are published
late, and clocks differ.
"""
GUARD_SECONDS = 60
"""If a live shard meets a change at most so much younger than the end of the scan, it cannot know
whether the scan has counted it."""
OUTLASTED_SECONDS = 24 * 3600 + 2 * TURN_SECONDS
"""This long after the end of the scan functions count live: every record that is left in the stream
is much younger than that end, even if clocks differ.
"""
SWEPT_SECONDS = OUTLASTED_SECONDS + TURN_SECONDS
"""This long after the end of the scan no function counts by the ledger any more, because no
invocation runs so long.
"""


@dataclass(frozen=True, slots=True)
class Build:
    """One build of one aggregate.

    `scanned` is when its scan ended (epoch seconds, 0 before); `segments` is into how many the scan
    is cut. `past` are numbers and segments of builds whose ledgers must still be swept. `begun` is
    when it began (epoch seconds).
    """

    number: int
    state: BuildState
    scanned: int = 0
    segments: int = 0
    past: tuple[tuple[int, int], ...] = ()
    begun: int = 0

    def is_after(self, created: float) -> bool:
        """Return whether the scan cannot have met a change created then (epoch seconds)."""
        return 0 < self.scanned < created - TURN_SECONDS

    @property
    def under_way(self) -> bool:
        """Return whether the aggregate is not right yet."""
        return self.state in ("emptying", "building", "scanning")


def build_mark(aggregate: str, number: int) -> str:
    """Return the mark of a cursor that is live for a build."""
    return f"{aggregate}:{number}"


def mode_of(aggregate: str, build: Build | None, live: Collection[str]) -> Mode:
    """Return how a shard counts, from the marks of its cursor."""
    if build is None or build.state == "live":
        return "live"
    if build.state == "emptying":
        return "off"
    return "live" if build_mark(aggregate, build.number) in live else "ledger"


def due_to_turn(builds: Mapping[str, Build], live: Collection[str], seen: float) -> frozenset[str]:
    """Return the marks that a cursor may take now, to go live.

    Args:
        builds: by aggregate.
        live: the marks that it has.
        seen: every record created before this (epoch seconds) was read, and is committed.
    """
    return frozenset(
        build_mark(name, build.number)
        for name, build in builds.items()
        if build.state == "counting" and seen > build.scanned + TURN_SECONDS
    ) - frozenset(live)


def builds_text(builds: Mapping[str, Build]) -> str:
    """Return builds as the generation's item holds them; equal builds have equal texts."""
    fields = {name: asdict(build) for name, build in builds.items()}
    for said in fields.values():
        if not said["begun"]:
            del said["begun"]
    return json.dumps(fields, sort_keys=True)


def read_builds(text: str) -> dict[str, Build]:
    """Read a text of `builds_text`."""
    found: dict[str, Build] = {}
    for name, fields in json.loads(text).items():
        past = tuple((number, segments) for number, segments in fields.pop("past"))
        found[name] = Build(**fields, past=past)
    return found


def next_build(before: Build | None, number: int, segments: int, now: int) -> Build:
    """Return the build that begins with a generation's number, and remembers earlier ledgers."""
    past = () if before is None else retired(before).past
    return Build(number, "emptying", segments=segments, past=past, begun=now)


def retired(build: Build) -> Build:
    """Return what remains of a build whose aggregate is removed, or has changed since."""
    swept = build.state == "live"
    past = build.past if swept else (*build.past, (build.number, build.segments))
    return Build(build.number, "live", past=past)


def pass_name(aggregate: str, number: int) -> str:
    """Return the name of a build's scan."""
    return f"build.{aggregate}.{number}"


def reset_name(aggregate: str, number: int) -> str:
    """Return the name of the scan by which a build deletes the old contents."""
    return f"clear.{aggregate}.{number}"
