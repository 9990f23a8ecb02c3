"""Keep items that follow from an item in step with it: derived ones, and those in another table.

    reconcile(key):  read the source, strongly consistent, and what is in its targets' places
                     one transaction: the source is as it was read,
                                      put each target   IF the place is free, or mine
                                      delete each stale IF it is mine
                     refused by the source: read again; place taken: an error, written down

The first pass has just read the source, and most places are free: it sends the transaction without
reading anything again, and reads only if that is refused. A place that is free when the transaction
is applied holds nothing newer than what the pass has read. Where a place was not free, the next
ones are looked at before.

Only what is read now is written, never the image of a change: so repeated and late changes, and a
process that froze, cannot install an old value. Stale targets are those that the change's old image
led to. Items that move are families; see `families`.

In: a key. Out: what was done, in a `Tally`. On failure: as `in_place`; in addition `taken` where
another item is in a target's place.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from streamkit.errors import USER_ERRORS
from streamkit.migrate.book.errors import error_id
from streamkit.migrate.book.tallies import Tally
from streamkit.migrate.items.marks import mark_of, place_is
from streamkit.migrate.items.rewrites import Key, Rewrite, Target, WireItem, plain
from streamkit.migrate.items.transform import Transform
from streamkit.migrate.items.writes import as_left, check, delete, put, unchanged
from streamkit.migrate.run.in_place import delete_marked
from streamkit.migrate.sending.attempts import FailedItems, ItemAttempts, Undecided
from streamkit.migrate.sending.calls import DONE, Calls
from streamkit.model.conditions import Attr, absent
from streamkit.model.copies import COPY, FROM
from streamkit.progress.actions import Action, Wire
from streamkit.progress.scan.places import place_text
from streamkit.progress.transaction import ACTIONS_MAX


@dataclass
class Pairs:
    """Keeps targets in step with their sources."""

    transform: Transform
    calls: Calls
    failed: FailedItems

    def __post_init__(self) -> None:
        """Begin without any attempt."""
        self._attempts = ItemAttempts(self.calls, self.failed)

    async def forward(
        self,
        key: Key,
        *,
        old: WireItem | None = None,
        seen: WireItem | None = None,
    ) -> Tally:
        """Bring the targets of a source in step with it.

        The first pass has just `seen` it, strongly consistent. A change was made of an `old` image,
        whose targets may be stale.
        """
        return await self._attempts.persist(key, partial(self._attempt, key, old), seen)

    async def _attempt(self, key: Key, old: WireItem | None, seen: WireItem | None) -> Any:
        """Send one transaction; return None if there is nothing to do.

        With `seen`, which is the source, the places of its targets are taken to be free.

        Raises:
            Undecided: the items that exist do not fit together.
        """
        source = seen or await self.calls.get(self.transform.schema.name, key)
        if source is not None and COPY in source:
            return None
        rewrite = Rewrite(frozenset()) if source is None else self.transform.of(plain(source))
        wanted = {place_text(target.key): target for target in rewrite.targets}
        there: dict[str, WireItem | None] = dict.fromkeys(wanted)
        for place, target in wanted.items() if seen is None else ():
            there[place] = await self.calls.get(self.transform.target.name, target.key)
        stale = [t for t in self._stale(old) if place_text(t.key) not in wanted]
        mark = mark_of(self.transform.migration, self.transform.schema, key)
        actions = [
            *[
                action
                for place, target in wanted.items()
                for action in self._put(target, there[place], mark)
            ],
            *[a for t in stale for a in await self._remove(t, mark)],
        ]
        if not actions:
            return None
        if len(actions) >= ACTIONS_MAX:
            raise Undecided(
                "taken", f"it becomes more than {ACTIONS_MAX - 1} items, too many to write at once"
            )
        guard = self._guard(key, source, rewrite)
        return await self.calls.transact([guard, *actions])

    def _stale(self, old: WireItem | None) -> Sequence[Target]:
        if old is None or not self.transform.matches(old) or COPY in old:
            return ()
        try:
            return self.transform.of(plain(old)).targets
        except USER_ERRORS:  # then it never had any targets
            return ()

    def _guard(self, key: Key, source: WireItem | None, rewrite: Rewrite) -> Action:
        """Return the action that checks the source against what was read."""
        schema = self.transform.schema
        if source is None:
            return check(schema, key, [absent])
        held = unchanged(schema, source, rewrite.reads)
        return check(schema, key, [*held, Attr(COPY).not_exists()])

    def _put(self, target: Target, there: WireItem | None, mark: tuple[str, Wire]) -> list[Action]:
        """Return the actions that put a target, none if it is right.

        Raises:
            Undecided: another item is in its place.
        """
        schema, (name, value) = self.transform.target, mark
        place = place_is(self.transform.migration, mark, target, there)
        if place == "taken":
            raise Undecided("taken", f"another item is where it belongs, {error_id(target.key)}")
        if place == "right":
            return []
        held = [absent] if there is None else as_left(there, name)
        return [put(schema, {**target.item, name: value}, held, self.failed.writer)]

    async def _remove(self, target: Target, mark: tuple[str, Wire]) -> list[Action]:
        schema, (name, value) = self.transform.target, mark
        there = await self.calls.get(schema.name, target.key)
        if there is None or there.get(name) != value:
            return []
        return [delete(schema, target.key, as_left(there, name))]

    async def drop(self, item: WireItem) -> Tally:
        """Delete an item that this migration has made; it says that a migration deletes it."""
        if not str(item.get(FROM, {}).get("S", "")).startswith(f"{self.transform.migration.id}:"):
            return Tally()
        schema = self.transform.target
        key = schema.key_of(item)
        whose, mark = as_left(item, FROM)
        outcome = await delete_marked(
            self.calls, schema, key, [whose], self.failed.writer, first=[mark]
        )
        return Tally(changed=outcome is DONE)
