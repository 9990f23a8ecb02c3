"""Chains hold the runs of one item key, in order; other keys run beside them. Pure.

In: runs in the order of their shard. Out: one list per item key. Runs that are tied by more than
their item are in one list, too.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from streamkit.changes import ItemKey
from streamkit.core.outcome import Outcome, PendingChange


class Keyed(Protocol):
    """Something that belongs to one item; `ties` name what else must not run beside it."""

    @property
    def key(self) -> ItemKey:
        """Return the item's key."""
        ...

    @property
    def ties(self) -> frozenset[Hashable]:
        """Return what it shares with runs that must come before or after it; empty if nothing."""
        ...


@dataclass(slots=True)
class Run:
    """One handler still to be run for one pending change."""

    change: PendingChange
    outcome: Outcome
    key: ItemKey
    ties: frozenset[Hashable] = frozenset()


K = TypeVar("K", bound=Keyed)


def into_chains(runs: Iterable[K]) -> list[list[K]]:
    """Group runs by item key, or by their ties; keep their order within a group."""
    chains: dict[Hashable, list[tuple[int, K]]] = {}
    for number, run in enumerate(runs):
        names = run.ties or {run.key}
        chain = [(number, run)]
        for there in {id(found): found for n in names if (found := chains.get(n))}.values():
            small, chain = sorted((chain, there), key=len)
            chain += small
            for _, moved in small:
                chains |= dict.fromkeys(moved.ties or {moved.key}, chain)
        chains |= dict.fromkeys(names, chain)
    different = {id(chain): chain for chain in chains.values()}
    return [[run for _, run in sorted(chain, key=_number)] for chain in different.values()]


def _number(numbered: tuple[int, object]) -> int:
    return numbered[0]
