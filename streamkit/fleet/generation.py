"""Generations: which roll-out of the handlers a consumer is in.

The consumer's item holds a number and the fingerprint of the handlers. A fingerprint never seen
before starts a new generation; one equal to the newest joins it; an older known one stands by,
because a left-over worker of the last roll-out must not wipe out the new one. In the very write
that creates a generation, aggregates that are new, changed or were away are marked *needs
rebuild*: they have missed changes, and only a rebuild makes them right.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from streamkit.actions import OURS
from streamkit.conditions import Attr, absent
from streamkit.cursor import CursorStore
from streamkit.effects import Guard
from streamkit.errors import LeaseLost
from streamkit.handler import Handler

_KNOWN_MAX = 20
"""Fingerprints remembered: more roll-outs than are ever alive at once; the item stays small."""


@dataclass(frozen=True, slots=True)
class Generation:
    """The newest generation as the consumer's item says."""

    number: int
    fingerprint: str
    known: tuple[str, ...]
    aggregates: Mapping[str, str]
    rebuild: frozenset[str]


def read_generation(item: Mapping[str, Any]) -> Generation:
    """Read the consumer's item."""
    return Generation(
        number=int(item["generation"]["N"]),
        fingerprint=item["fingerprint"]["S"],
        known=tuple(part["S"] for part in item["known"]["L"]),
        aggregates={name: part["S"] for name, part in item["aggregates"]["M"].items()},
        rebuild=frozenset(item["rebuild"]["SS"]) if "rebuild" in item else frozenset(),
    )


def next_generation(
    newest: Generation | None, fingerprint: str, handlers: Iterable[Handler]
) -> Generation:
    """Return the generation that these handlers start."""
    aggregates = {h.name: h.definition for h in handlers if h.is_aggregate}
    if newest is None:
        return Generation(1, fingerprint, (fingerprint,), aggregates, frozenset())
    missed = {name for name, made in aggregates.items() if newest.aggregates.get(name) != made}
    gone = {name for name in newest.aggregates if name not in aggregates}
    return Generation(
        newest.number + 1,
        fingerprint,
        (*[known for known in newest.known if known != fingerprint], fingerprint)[-_KNOWN_MAX:],
        aggregates,
        (newest.rebuild | missed) - gone,
    )


async def newest_generation(store: CursorStore) -> Generation | None:
    """Read the newest generation; None before the first."""
    item = await store.item("consumer")
    return None if item is None else read_generation(item)


async def join_generation(
    store: CursorStore, fingerprint: str, handlers: Iterable[Handler], *, take_over: bool
) -> Generation | None:
    """Join the newest generation or start one; None means: stand by, this is an older roll-out.

    Args:
        store: the consumer's control items.
        fingerprint: of the handlers.
        handlers: what the app registers.
        take_over: let a known older fingerprint start a generation, because no worker of the
            newest is alive or an operator said so.
    """
    handlers = list(handlers)
    while True:
        newest = await newest_generation(store)
        if newest is not None and newest.fingerprint == fingerprint:
            return newest
        if newest is not None and fingerprint in newest.known and not take_over:
            return None
        started = next_generation(newest, fingerprint, handlers)
        try:
            await _write(store, newest, started)
        except LeaseLost:
            continue  # another worker started one at the same moment: look again
        return started


async def _write(store: CursorStore, newest: Generation | None, started: Generation) -> None:
    action = store.space.update("consumer")
    action.sets |= {
        "generation": {"N": str(started.number)},
        "fingerprint": {"S": started.fingerprint},
        "known": {"L": [{"S": known} for known in started.known]},
        "aggregates": {"M": {name: {"S": made} for name, made in started.aggregates.items()}},
    }
    if started.rebuild:
        action.sets["rebuild"] = {"SS": sorted(started.rebuild)}
    elif newest is not None and newest.rebuild:
        action.removes.add("rebuild")
    condition = absent if newest is None else Attr("generation").eq(newest.number)
    action.guards.append((Guard(condition), OURS))
    await store.write(action)
