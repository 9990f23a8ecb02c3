"""The shards of a status: a tree, with owner, position and lag, and what each waits for."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from streamkit.core.parked.queues import ParkedQueue
from streamkit.core.parking import Parked
from streamkit.fleet.lag import Lag, time_to_loss
from streamkit.fleet.members import Member
from streamkit.fleet.taken import is_over
from streamkit.progress.control import Cursor


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """One shard's cursor.

    `depth` is its generation in the tree of splits that is still known. `parked_queues` counts its
    queues and those of its parents; `parked` counts by handler what was parked here. `lost` is when
    records were last found to be lost, or possibly lost, and passed over (epoch seconds, 0: never).
    `waits_for` names handlers that delay it: a change of theirs fails, and is retried until
    it succeeds, because of `on_failure="block"` or an open breaker.
    """

    name: str
    parent: str | None
    depth: int
    state: str
    owner: str | None
    epoch: int
    generation: int
    position: str
    lag_seconds: float | None
    lag: str
    parked_queues: int
    parked: dict[str, int]
    lost: int
    time_to_loss_seconds: float | None
    waits_for: tuple[str, ...] = ()


def unowned(cursors: Mapping[str, Cursor], members: Mapping[str, Member]) -> Iterator[str]:
    """Yield the open shards that no known worker owns."""
    for _, cursor in in_tree_order(cursors):
        if not is_over(cursor) and cursor.owner not in members:
            yield cursor.name


def shard_statuses(
    cursors: Mapping[str, Cursor],
    lags: Mapping[str, Lag],
    queues: Sequence[ParkedQueue],
    parked: Sequence[Parked],
    members: Mapping[str, Member],
) -> Iterator[ShardStatus]:
    """Yield the status of each shard that is still known, in the order of the tree."""
    queues_of, waits = Counter(queue.chunk for queue in queues), waits_by_shard(cursors, members)
    for depth, cursor in in_tree_order(cursors):
        yield ShardStatus(
            name=cursor.name,
            parent=cursor.parent,
            depth=depth,
            state=cursor.state,
            owner=cursor.owner,
            epoch=cursor.epoch,
            generation=cursor.generation,
            position=cursor.position,
            lag_seconds=lags[cursor.name].seconds,
            lag=lags[cursor.name].measure,
            parked_queues=sum(queues_of[chunk] for chunk in cursor.chunks),
            parked=by_handler(change for change in parked if change.shard == cursor.name),
            lost=cursor.lost,
            time_to_loss_seconds=None if is_over(cursor) else time_to_loss(lags[cursor.name]),
            waits_for=waits.get(cursor.name, ()),
        )


def waits_by_shard(
    cursors: Mapping[str, Cursor], members: Mapping[str, Member]
) -> dict[str, tuple[str, ...]]:
    """Return the handlers that each shard waits for, as its owner reports them."""
    found: dict[str, tuple[str, ...]] = {}
    for name, cursor in cursors.items():
        owner = members.get(cursor.owner or "")
        said = (text.split(" ", 1) for text in sorted(owner.waits if owner else ()))
        if handlers := tuple(handler for shard, handler in said if shard == name):
            found[name] = handlers
    return found


def in_tree_order(cursors: Mapping[str, Cursor]) -> Iterator[tuple[int, Cursor]]:
    """Yield each cursor after its parent, with its depth; siblings and roots by name."""
    children: dict[str | None, list[Cursor]] = {}
    for name in sorted(cursors):
        cursor = cursors[name]
        parent = cursor.parent if cursor.parent in cursors else None
        children.setdefault(parent, []).append(cursor)
    todo = [(0, cursor) for cursor in reversed(children.get(None, []))]
    while todo:
        depth, cursor = todo.pop()
        yield depth, cursor
        todo += [(depth + 1, child) for child in reversed(children.get(cursor.name, []))]


def by_handler(parked: Iterable[Parked]) -> dict[str, int]:
    """Count parked changes by handler."""
    return dict(sorted(Counter(change.handler for change in parked).items()))


def worst_lag(cursors: Mapping[str, Cursor], lags: Mapping[str, Lag]) -> float | None:
    """Return the largest lag; None if there is no shard, or the lag of one is unknown."""
    seconds = [lags[name].seconds for name, cursor in cursors.items() if not is_over(cursor)]
    if cursors and not seconds:
        return 0.0  # the app has taken this consumer's handler over on all of them
    known = [value for value in seconds if value is not None]
    return max(known) if known and len(known) == len(seconds) else None


def time_left(cursors: Mapping[str, Cursor], lags: Mapping[str, Lag]) -> float | None:
    """Return the shortest time to a loss; None if no shard's is known."""
    left = [time_to_loss(lags[name]) for name, cursor in cursors.items() if not is_over(cursor)]
    return min((seconds for seconds in left if seconds is not None), default=None)
