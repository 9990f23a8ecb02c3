"""Lineage: which shards may get a cursor now. Pure.

A stream's shards form a forest. A child may be read only after its parent is finished, whatever
`DescribeStream` says: it may list a parent as open while it has children, list children late, or
omit a parent that is still readable. So the truth about a parent is its *cursor*:

    parent's cursor      finished            -> the child gets a cursor, inheriting from it
                         not finished        -> the child waits, also when the parent is unlisted
                         none, but listed    -> the parent gets its own cursor first
                         none, not listed    -> ask for an iterator: only if the service says that
                                                the parent is gone does the child begin a new tree
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import msgspec

from streamkit.progress.control import Cursor, child_of


class Shard(msgspec.Struct, frozen=True):
    """A shard as `DescribeStream` lists it; the sequence numbers as sent, or None."""

    id: str
    parent: str | None = None
    starting: str | None = None
    ending: str | None = None


class ListerStep(msgspec.Struct, frozen=True):
    """What the lister may do now: create these cursors, and ask about these parents."""

    create: tuple[Cursor, ...]
    probe: frozenset[str]


def next_step(
    listed: Iterable[Shard],
    cursors: Mapping[str, Cursor],
    *,
    gone: frozenset[str],
    generation: int,
    since: int = 0,
) -> ListerStep:
    """Return which listed shards get a cursor now.

    Args:
        listed: the shards of one complete listing, in any order.
        cursors: every cursor of the consumer, including finished ones.
        gone: unlisted parents that do not exist any more, as the service has said.
        generation: the generation in which a cursor without a parent's cursor starts.
        since: from when on changes count for such a cursor, in epoch seconds.
    """
    begin = partial(child_of, generation=generation, since=since)
    with_heir = {cursor.parent for cursor in cursors.values()}
    shards = {shard.id: shard for shard in listed}
    create: list[Cursor] = []
    probe: set[str] = set()
    for shard in shards.values():
        if shard.id in cursors:
            continue
        parent = None if shard.parent is None else cursors.get(shard.parent)
        if parent is None and shard.parent is not None:
            if shard.parent in shards:
                continue
            if shard.parent not in gone:
                probe.add(shard.parent)
                continue
        if parent is not None and not parent.finished:
            continue
        heir = parent is not None and not parent.children and shard.parent not in with_heir
        with_heir.add(shard.parent)
        create.append(begin(shard.id, parent, parent_name=shard.parent, heir=heir))
    return ListerStep(tuple(create), frozenset(probe))


def parents_first(shards: Iterable[Shard]) -> Iterator[Shard]:
    """Yield shards, each after its parent if that is one of them; leases may name a circle."""
    left = {shard.id: shard for shard in shards}
    while left:
        ready = [shard for shard in left.values() if shard.parent not in left]
        for shard in ready or list(left.values()):
            del left[shard.id]
            yield shard


def forgotten(
    listed: Iterable[Shard], cursors: Mapping[str, Cursor], *, now: float, keep_seconds: float
) -> tuple[Cursor, ...]:
    """Return the finished cursors to delete: their shards can never be listed again.

    A finished cursor proves that its shard was read. If it were deleted while the shard is still
    listed, the shard would be read a second time.
    """
    ids = {shard.id for shard in listed}
    return tuple(
        cursor
        for cursor in cursors.values()
        if cursor.finished and cursor.name not in ids and now - cursor.ended > keep_seconds
    )
