"""Builds: where the counting of what a table holds already stands, aggregate by aggregate. Pure.

    emptying    nothing is counted; what is stored of the aggregate, and parked for it, is deleted
    building    changes are counted by the ledger, see `kinds.counting`; then all shards do so
    scanning    so is what the table holds
    counting    the scan has ended and the aggregate is right; shards turn *live* one by one
    live        every shard is, and the ledger is swept

A build's number is that of the generation that began it, so that it is never used twice. The first
two states begin with a generation's number, because every shard has to take the step; the others
do not. Lambda functions have no shards: each invocation counts as the item says when it begins, and
those of before are outlasted. In: the generation's item, the mark of a cursor. Out: how a shard, or
an invocation, counts.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Literal

BuildState = Literal["emptying", "building", "scanning", "counting", "live"]

Mode = Literal["off", "ledger", "live"]
"""How a shard counts: not at all, by the ledger, or the difference of a change's two images."""

TURN_SECONDS = 3600
"""How much younger than the end of the scan a shard has to be to turn live: records are published
late, and clocks differ."""
GUARD_SECONDS = 60
"""A live shard that meets a change so little younger than the end of the scan cannot know whether
the scan has counted it."""
OUTLASTED_SECONDS = 24 * 3600 + 2 * TURN_SECONDS
"""After the end of the scan functions count live: the stream has nothing any more that is not much
younger than that end, whatever clocks differ."""
SWEPT_SECONDS = OUTLASTED_SECONDS + TURN_SECONDS
"""After the end of the scan no function counts by the ledger any more: none runs for so long."""


@dataclass(frozen=True, slots=True)
class Build:
    """One build of one aggregate.

    `scanned` is when its scan ended (epoch seconds, 0 before), `segments` into how many the scan is
    cut. `past` are numbers and segments of builds whose ledgers are still to be swept. `begun` is
    when it began (epoch seconds).
    """

    number: int
    state: BuildState
    scanned: int = 0
    segments: int = 0
    past: tuple[tuple[int, int], ...] = ()
    begun: int = 0

    def is_after(self, created: float) -> bool:
        """Say whether the scan cannot have met a change that was created then (epoch seconds)."""
        return 0 < self.scanned < created - TURN_SECONDS

    @property
    def under_way(self) -> bool:
        """Whether the aggregate is not right yet."""
        return self.state in ("emptying", "building", "scanning")


def build_mark(aggregate: str, number: int) -> str:
    """Return what a cursor says once it is live for a build."""
    return f"{aggregate}:{number}"


def mode_of(aggregate: str, build: Build | None, live: Collection[str]) -> Mode:
    """Say how a shard counts whose cursor has these marks."""
    if build is None or build.state == "live":
        return "live"
    if build.state == "emptying":
        return "off"
    return "live" if build_mark(aggregate, build.number) in live else "ledger"


def due_to_turn(builds: Mapping[str, Build], live: Collection[str], seen: float) -> frozenset[str]:
    """Return the marks that a cursor may take now.

    Args:
        builds: by aggregate.
        live: the marks that it has.
        seen: every record created before (epoch seconds) was read, and is committed.
    """
    return frozenset(
        build_mark(name, build.number)
        for name, build in builds.items()
        if build.state == "counting" and seen > build.scanned + TURN_SECONDS
    ) - frozenset(live)


def builds_text(builds: Mapping[str, Build]) -> str:
    """Return builds as the generation's item holds them: equal for equal builds."""
    fields = {name: asdict(build) for name, build in builds.items()}
    for said in fields.values():
        if not said["begun"]:
            del said["begun"]
    return json.dumps(fields, sort_keys=True)


def read_builds(text: str) -> dict[str, Build]:
    """Read what `builds_text` wrote."""
    found: dict[str, Build] = {}
    for name, fields in json.loads(text).items():
        past = tuple((number, segments) for number, segments in fields.pop("past"))
        found[name] = Build(**fields, past=past)
    return found


def next_build(before: Build | None, number: int, segments: int, now: int) -> Build:
    """Return the build that begins with a generation's number, after those before it."""
    past = () if before is None else retired(before).past
    return Build(number, "emptying", segments=segments, past=past, begun=now)


def retired(build: Build) -> Build:
    """Return what is left of a build whose aggregate is gone, or is another one by now."""
    swept = build.state == "live"
    past = build.past if swept else (*build.past, (build.number, build.segments))
    return Build(build.number, "live", past=past)


def pass_name(aggregate: str, number: int) -> str:
    """Name the scan of a build."""
    return f"build.{aggregate}.{number}"


def clearing_name(aggregate: str, number: int) -> str:
    """Name the scan by which a build deletes what was stored before."""
    return f"clear.{aggregate}.{number}"
