"""Compute extremes in a backfill: each group that has an item, once, from its items.

In: the key of a group, and the segment under whose lease it is computed. Out: the group holds the
extremes of its items, IF nothing was contributed to it meanwhile; else it is computed again. On
failure: `LeaseLost`, or a `ConfigurationError` that says what does not fit.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from streamkit.aws import Aws
from streamkit.core.draft import Draft
from streamkit.core.reading import ReadTracker
from streamkit.core.tables import Tables
from streamkit.effects import Guard
from streamkit.errors import ConfigurationError, LeaseLost
from streamkit.kinds.aggregate.aggregate import Aggregate
from streamkit.kinds.aggregate.extremes import extremes_of
from streamkit.kinds.aggregate.ranked import recomputed
from streamkit.model.keys import Key
from streamkit.progress.actions import (
    OURS,
    Action,
    GuardSource,
    Verb,
)
from streamkit.progress.clock import Clock, utc
from streamkit.progress.compile import compile_effect
from streamkit.progress.cursor import CursorStore, lease_guard
from streamkit.progress.scan.segment import LeasedSegment
from streamkit.progress.transaction import transact
from streamkit.progress.verdicts import Invalid
from streamkit.table import Table

_RECOMPUTES_MAX = 50
"""How often at most a group is computed again because changes of it came in between."""


@dataclass
class BackfilledExtremes:
    """Computes the groups of one aggregate from their items, if it has extremes."""

    aggregate: type[Aggregate[Any]]
    aws: Aws
    store: CursorStore
    tables: Tables
    clock: Clock
    rng: random.Random
    _computed: set[Key[Any]] = field(default_factory=set)

    def due(self, groups: Iterable[Iterable[Key[Any]]]) -> list[Key[Any]]:
        """Return the groups that have to be computed, each once."""
        if not extremes_of(self.aggregate):
            return []
        return [key for key in dict.fromkeys(chain(*groups)) if key not in self._computed]

    async def compute(self, segment: LeasedSegment, key: Key[Any]) -> None:
        """Compute a group from its items, under the segment's lease.

        Raises:
            LeaseLost: another process has the segment, or changes of the group kept coming.
            ConfigurationError: it does not fit in one transaction, or is refused.
        """
        space = self.store.space
        for _ in range(_RECOMPUTES_MAX):
            tracker = ReadTracker()
            table = Table(self.aws.dynamodb, self.tables.own, tracker, self.tables)
            effects = await recomputed(self.aggregate, key, table, utc(self.clock.time()))
            if not effects:
                return
            draft = Draft()
            source = GuardSource("", self.aggregate.__name__, 0)
            writes = [compile_effect(effect, self.tables.own, source) for effect in effects]
            checks = [
                Action(read.ref, Verb.CHECK, guards=[(Guard(c), source) for c in read.conditions])
                for read in tracker.reads
                if read.conditions
            ]
            if not draft.offer(writes, checks):
                raise ConfigurationError(
                    f"{self.aggregate.__name__}: the extremes of group {key.digest} do not fit in"
                    " one transaction; keep fewer of them, or less of each"
                )
            lease = Action(space.ref("cursor", segment.cursor.name), Verb.CHECK)
            lease.guards.append(lease_guard(segment.cursor))
            actions = [*draft.actions.values(), lease]
            # After a death before this, the next scanner of the segment computes the group again.
            sent = await transact(self.aws.dynamodb, self.tables, actions, self.rng)
            if sent is None:
                self._computed.add(key)
                return
            if isinstance(sent, Invalid):
                raise ConfigurationError(f"{self.aggregate.__name__}: {sent.code}")
            if OURS in sent.sources:
                raise LeaseLost(f"segment {segment.cursor.name} was taken")
        raise LeaseLost(f"group {key.digest} kept changing while it was computed")
