"""What an archive has, and what it lacks: read from its objects, since a moment.

In: the archive of a stream. Out: what is there, and every gap: a hole that its writer recorded, a
link that is missing, an object whose content does not have its hash, a shard whose parent is
unknown. Every object is read. What the archive's writer remembers is held against it: its cursor of
a shard is younger than the shard's entry in the lineage, and than every object before its position.
"""

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from streamkit.archive.chain import Chain
from streamkit.archive.link import BEYOND, ORIGIN, DamagedLink, Link, key_of
from streamkit.archive.shards import ArchivedShards, born
from streamkit.archive.still_streamed import StillStreamed
from streamkit.archive.walk import walk
from streamkit.progress.clock import utc
from streamkit.progress.control import Cursor
from streamkit.stream.start import REACH_SECONDS

NOTHING: Mapping[str, Cursor] = MappingProxyType({})
_FORGOTTEN = "its archive ends there, and the stream does not reach back to that"


@dataclass(frozen=True, slots=True)
class Gap:
    """Records of a shard after one position up to another that the archive does not have.

    Without a shard it is what was changed before the archive began.
    """

    shard: str
    after: str
    last: str
    text: str


@dataclass(slots=True)
class ArchiveCheck:
    """What an archive has, and lacks.

    `first` and `until` are when its records were created, 0 for none; `began` is when it began.
    """

    stream: str
    place: str
    shards: int = 0
    open: int = 0
    links: int = 0
    records: int = 0
    first: float = 0.0
    until: float = 0.0
    began: float = 0.0
    gaps: list[Gap] = field(default_factory=list)
    sampled: int = 0
    different: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Return whether nothing is missing, and nothing is known to differ from the table."""
        return not (self.gaps or self.different)

    def compare(self, items: int, different: list[str]) -> None:
        """Add what comparing a sample with the table has found."""
        self.sampled, self.different = items, different

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        return {**asdict(self), "whole": self.whole}

    def note_beginning(self, began: float, since: float) -> None:
        """Add when the archive began; that is a gap if it is later than `since`."""
        self.began = began
        if 0 < since < began:
            text = f"the archive begins at {utc(began).isoformat()}"
            self.gaps.insert(0, Gap("", "", "", text))

    def note(self, chain: Chain, after: str, last: str, text: str) -> None:
        """Add a gap."""
        self.gaps.append(Gap(chain.shard, after, last, text))

    def count(self, link: Link) -> None:
        """Count a link that was read."""
        self.links, self.records = self.links + 1, self.records + link.count
        if link.count:
            self.first = min(self.first or link.first, link.first)
            self.until = max(self.until, link.until)

    def close(self, *, ended: bool) -> None:
        """Count a shard whose chain was read."""
        self.shards += 1
        self.open += not ended


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a consumer begins to read an archive, for every change since a moment.

    `begins` are the shards that are read first, `lacks` says in sentences what is missing.
    """

    begins: frozenset[str]
    lacks: tuple[str, ...]


async def beginning(
    still: StillStreamed,
    read_written: Callable[[], Awaitable[Mapping[str, Cursor]]],
    since: float,
    created: float = -math.inf,
) -> Beginning:
    """Return where reading begins for every change since a moment, and what is missing.

    `created` is when the stream was: an archive that began on its first day has all of it. What an
    object that is missing or damaged had is not missing if the stream `still` has it.
    `read_written` reads the cursors of the archive's writer.
    """
    archive, written = still.archive, await read_written()
    begins, began = await archive.begins(since), await archive.began()
    found = await check(still, "", since, began or 0.0, written)
    gaps = [gap for gap in found.gaps if not await _is_streamed(still, gap)]
    lacks = [f"shard {gap.shard}: {gap.text}" for gap in gaps]
    if began is None or (began > since and began - created > REACH_SECONDS):
        text = "was never written" if began is None else f"begins at {utc(began).isoformat()}"
        lacks.append(f"the archive {text}")
    return Beginning(begins, tuple(lacks))


async def _is_streamed(still: StillStreamed, gap: Gap) -> bool:
    """Return whether the stream still has what a gap lacks; a hole is final for all readers."""
    if not gap.after:
        return False
    try:
        found = await still.archive.chain(gap.shard).at(gap.after)
    except DamagedLink:
        found = None
    is_hole = found is not None and found[0].kind == "hole"
    return not is_hole and await still.has(gap.shard, gap.after)


async def check(
    still: StillStreamed,
    place: str,
    since: float = 0.0,
    began: float = 0.0,
    written: Mapping[str, Cursor] = NOTHING,
) -> ArchiveCheck:
    """Read every object of an archive, of the shards with changes since a moment.

    Args:
        still: its stream, which must have what follows the end of each open shard.
        place: its name, for people.
        since: epoch seconds; 0 for all of it.
        began: when the archive began.
        written: the cursors of its writer, as they were read before.
    """
    archive = still.archive
    found = ArchiveCheck(archive.stream, place)
    parents = {shard.id: shard.parent for shard in await archive.shards()}
    wanted, ends = await shards_since(archive, parents, since), ends_of(parents, written)
    lacking = unknown(parents, max(since, began), written)
    for shard in sorted(wanted | lacking.keys()):
        if shard in lacking:
            found.note(archive.chain(shard), "", "", lacking[shard])
        end = await check_chain(archive.chain(shard), found, ends.get(shard, ORIGIN))
        if end is not None and not await is_followed(still, shard, end):
            found.note(archive.chain(shard), end, "", _FORGOTTEN)
    return found


async def is_followed(still: StillStreamed, shard: str, end: str) -> bool:
    """Return whether the stream has what follows the end of a shard's chain.

    Of a shard that is younger than the stream's day nothing was forgotten yet.
    """
    if end == ORIGIN and still.clock.time() - born(shard) < REACH_SECONDS:
        return True
    return await still.has(shard, end)


def ends_of(parents: Mapping[str, str | None], written: Mapping[str, Cursor]) -> dict[str, str]:
    """Return up to where the chains of shards must lead at least; others may be empty.

    A shard that has children has its end: they are recorded after it.
    """
    cursors = written.values()
    found = {c.name: BEYOND if c.finished else key_of(c.position) for c in cursors}
    return found | {parent: BEYOND for parent in parents.values() if parent is not None}


def unknown(
    parents: Mapping[str, str | None], since: float, written: Mapping[str, Cursor]
) -> dict[str, str]:
    """Return the shards of which a part of the lineage is missing, and which; as sentences."""
    removed = {
        name: cursor.parent
        for name, cursor in written.items()
        if name not in parents and not (cursor.finished and cursor.ended < since)
    }
    text = "it was recorded in the lineage, and is not any more"
    return dict.fromkeys(removed, text) | orphans({**parents, **removed}, since)


def orphans(parents: Mapping[str, str | None], since: float) -> dict[str, str]:
    """Return the shards whose parents had changes since a moment, and are not known; say so.

    A shard that was created before a moment needs no parent since then.
    """
    found: dict[str, str] = {}
    for shard, parent in parents.items():
        if parent is not None and parent not in parents and born(shard) > since:
            found[shard] = f"its parent {parent} is not archived"
    return found


async def shards_since(
    archive: ArchivedShards, parents: dict[str, str | None], since: float
) -> set[str]:
    """Return the shards with changes since a moment."""
    if not since:
        return set(parents)
    wanted = set(await archive.begins(since))
    while more := {name for name, up in parents.items() if up in wanted} - wanted:
        wanted |= more
    return wanted


async def check_chain(chain: Chain, found: ArchiveCheck, upto: str) -> str | None:
    """Read a chain, which must lead up to a position, or to its end.

    Returns:
        The end of an open shard, behind which the stream has to go on; None of a shard that has
        ended, and where a gap at its end was noted.
    """
    ends, kind = ORIGIN, ""
    async for step in walk(chain, await chain.positions()):
        if step.missing:
            found.note(chain, step.missing, step.begin, f"{chain.name(step.missing)} is missing")
        ends, link = step.ends, step.link
        if link is None:
            found.note(chain, step.begin, step.ends, step.text)
            continue
        if link.kind == "hole":
            text = f"{link.reason}: {chain.name(step.begin)}"
            found.note(chain, link.after, link.last, text)
        found.count(link)
        kind = link.kind
    if kind != "end" and ends < upto:
        found.note(chain, ends, upto, f"{chain.name(ends)} is missing")
    found.close(ended=kind == "end")
    return None if kind == "end" or ends < upto or ends == BEYOND else ends
