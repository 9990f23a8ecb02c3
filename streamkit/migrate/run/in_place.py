"""Bring one item into the new shape in its place, IF all that was read of it still holds.

    reconcile(image):  T(image) = image: done
                       update the item IF what T read, sets and removes is as in the image
                       refused: the reply holds the item as it is now; reconcile that

The pass and the stream both call this, and the first call does the work. Nothing that an
application writes meanwhile is lost: if its write changed attributes that T reads, the condition
fails; other attributes are not touched. The condition also covers the attributes that T sets:
otherwise a process that stood still would overwrite them after the end, and no process would
restore them. The condition is on what was read and not on a version, because an old writer does not
change the version.

In: an item. Out: what was done, as a count in a `Tally`. On failure: what the function raises, and
what DynamoDB finds invalid, is written down as an error of the item; other items continue.
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import Any

import anyio

from streamkit.migrate.book.errors import error_id
from streamkit.migrate.book.tallies import Tally
from streamkit.migrate.items.rewrites import Key, Rewrite, WireItem, plain, wire
from streamkit.migrate.items.transform import Transform
from streamkit.migrate.items.writes import delete, origin_text, unchanged, update
from streamkit.migrate.sending.attempts import FailedItems, ItemAttempts, Undecided
from streamkit.migrate.sending.calls import DONE, GONE, Calls, Outcome
from streamkit.model.conditions import Attr, Condition
from streamkit.model.origin import ORIGIN
from streamkit.model.schema import TableSchema
from streamkit.progress.clock import Clock
from streamkit.progress.verdicts import Invalid, RefusedCommit

_REWRITES, _WINDOW_SECONDS = 30, 60.0
"""Rewrites of one item by the stream in the window; after more, other code may revert each one."""
_HOLD_SECONDS = 5.0
"""The seconds for which such an item is left alone; code that answers each rewrite is faster than
that.
"""
_SILENCES = 3
"""After so many pauses in a row without a write, it is proven that other code writes in answer to
rewrites.
"""
_REMEMBERED = 10_000


class RewriteBudget:
    """Counts how often the stream made us rewrite an item, so that a ping-pong ends."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: OrderedDict[str, list[float]] = OrderedDict()
        self._silences: Counter[str] = Counter()

    def spent(self, name: str) -> bool:
        """Count a rewrite; return whether there were too many lately."""
        now = self._clock.monotonic()
        times = [at for at in self._seen.pop(name, []) if now - at < _WINDOW_SECONDS]
        self._seen[name] = [*times, now]
        if len(self._seen) > _REMEMBERED:
            self.forget(next(iter(self._seen)))
        return len(times) >= _REWRITES

    def is_silent_again(self, name: str) -> bool:
        """Count a pause in which the item was not written; return whether there were enough."""
        self._silences[name] += 1
        return self._silences[name] >= _SILENCES

    def forget(self, name: str) -> None:
        """Forget the counts of an item."""
        self._seen.pop(name, None)
        self._silences.pop(name, None)


class InPlace:
    """Rewrites items where they are."""

    def __init__(self, transform: Transform, calls: Calls, failed: FailedItems) -> None:
        self.transform = transform
        self._calls = calls
        self._failed = failed
        self._budget = RewriteBudget(failed.clock)
        self._attempts = ItemAttempts(calls, failed)

    async def reconcile(self, item: WireItem, *, live: bool) -> Tally:
        """Bring an item, as it was read, into the new shape; a `live` one comes from the stream."""
        key, limits = self.transform.schema.key_of(item), self._calls.rate.limits
        answer: WireItem | None = None

        async def attempt(seen: WireItem | None) -> Any:
            nonlocal answer
            there, answer = seen or answer, None
            if there is None:
                there = await self._calls.get(self.transform.schema.name, key)
            # What is read again may have become another entity's.
            if there is None or not self.transform.matches(there):
                return GONE
            rewrite = self.transform.of(plain(there))
            if not rewrite.changes_item:
                return None
            if live and await self._is_turned_back(key):
                raise Undecided("ping_pong", "it is turned back again and again")
            outcome = await self._write(key, there, rewrite)
            if isinstance(outcome, Invalid):  # of what was read: the reply says if it has changed
                raise Undecided("invalid", outcome.text)
            if not isinstance(outcome, RefusedCommit):
                return outcome
            now = outcome.items.get(0)
            answer = now if limits.none else None  # with a limit, `persist` waits before it reads
            return GONE if now is None else outcome

        # In a queue many changes of an item are old; a limit counts writes that are refused, too.
        trusting = not live or limits.max_writes is None
        return await self._attempts.persist(key, attempt, item, trusting=trusting)

    async def _is_turned_back(self, key: Key) -> bool:
        """Return whether other code answers each rewrite of an item with one that reverts it.

        An item that is only written often looks the same, until it is left alone for a while: code
        that answers rewrites has nothing to answer then, and code that writes by itself continues.
        """
        name, table = error_id(key), self.transform.schema.name
        if not self._budget.spent(name):
            return False
        before = await self._calls.get(table, key)
        if before is None or not self.transform.of(plain(before)).changes_item:
            return False  # the change is an old one of a long queue, and the item is right since
        await anyio.sleep(_HOLD_SECONDS)
        if await self._calls.get(table, key) != before:
            self._budget.forget(name)
            return False
        return self._budget.is_silent_again(name)

    async def stays(self, keys: Sequence[Key]) -> list[bool]:
        """Return for each item whether it stays in the new shape without being rewritten."""
        table = self.transform.schema.name
        before = [await self._calls.get(table, key) for key in keys]
        await anyio.sleep(_HOLD_SECONDS)
        after = [await self._calls.get(table, key) for key in keys]
        return [
            now is None
            or (
                now.get(ORIGIN) == then.get(ORIGIN)
                and not self.transform.of(plain(now)).changes_item
            )
            for then, now in zip((one or {} for one in before), after, strict=True)
        ]

    async def _write(self, key: Key, item: WireItem, rewrite: Rewrite) -> Any:
        schema = self.transform.schema
        held = unchanged(schema, item, rewrite.reads | rewrite.sets.keys() | rewrite.removes)
        if rewrite.delete:
            return await delete_marked(self._calls, schema, key, held, self._failed.writer)
        sets, removes = wire(rewrite.sets), rewrite.removes
        action = update(schema, key, held, self._failed.writer, sets=sets, removes=removes)
        return await self._calls.write(action)


async def delete_marked(
    calls: Calls,
    schema: TableSchema,
    key: Key,
    held: Sequence[Condition],
    writer: str,
    *,
    first: Sequence[Condition] = (),
) -> Outcome:
    """Delete an item, after its last image says that a migration deletes it.

    The conditions of `held` hold when it is marked, and still when it is deleted; those of `first`
    hold only when it is marked.
    """
    text = origin_text(writer, deleting=True)
    marked = await calls.write(update(schema, key, [*held, *first], writer, origin=text))
    if marked is not DONE:
        return marked
    return await calls.write(delete(schema, key, [*held, Attr(ORIGIN).eq(text)]))
