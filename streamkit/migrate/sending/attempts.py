"""Attempt something with an item until it is done, or write down why it cannot be.

In: a coroutine that reads, and sends one conditional write or transaction. Out: what was done, in a
`Tally`. On failure: a record of the item that failed, a count, and a log line, which never holds
item data; what ends a run is raised. The message of the user's exception may hold some: it stays in
the record, with the file and line of the user's code that raised it, until a person asks for it.
"""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from streamkit.core.parking import Failure
from streamkit.errors import USER_ERRORS, ConfigurationError, LeaseLost, Unavailable
from streamkit.migrate.book.errors import ErrorBook, Reason, error_id
from streamkit.migrate.book.tallies import Tally
from streamkit.migrate.items.rewrites import Key, WireItem
from streamkit.migrate.sending.calls import DONE, GONE, Calls
from streamkit.observe.logger import get_logger
from streamkit.progress.clock import Clock
from streamkit.progress.verdicts import Invalid

log = get_logger("streamkit.migrate")

_TRIES = 20
"""Tries of one item that changes each time; its last change is in the stream, too."""
_LOOKS = 50
"""Items that are read, after one was not as it was seen, before the next is taken as seen."""


@dataclass(frozen=True)
class FailedItems:
    """Where one migration's work writes down items that fail; `writer` is its name in origins.

    `run` says which run of it this is, and whether forward or back: a waiver covers no other one.
    """

    book: ErrorBook
    clock: Clock
    writer: str
    phase: str = ""
    run: str = ""

    async def note(
        self,
        key: Key,
        kind: str,
        what: str | BaseException,
        *,
        name: str = "",
        shown: str = "",
        detail: str = "",
    ) -> Tally:
        """Write down that an item could not be brought into the new shape, and count it.

        The record's `name` is by default the hash of the key. `shown` is a digest of what a person
        would decide about, and `detail` what it sees of that on request.
        """
        name = name or error_id(key)
        known: dict[str, Any] = {"migration": self.writer, "kind": kind, "item": name}
        log.often("migration.item_failed", level="warning", by=kind, **known)
        reason = reason_of(kind, what, self.phase)
        reason = replace(reason, detail=detail or reason.detail)
        at = self.clock.time()
        waived = await self.book.add(key, reason, at, name=name, shown=shown or self.run)
        return Tally(errors=1, waived=waived)


def reason_of(kind: str, what: str | BaseException, phase: str) -> Reason:
    """Return why an item failed, in words."""
    if isinstance(what, str):
        return Reason(kind, what, phase)
    if _is_ours(what):
        return Reason(kind, describe(what), phase)
    failure = Failure.of(what, 1)
    return Reason(kind, describe(what), phase, str(what), failure.place.removeprefix("at "))


def located(error: BaseException) -> str:
    """Return an error's class with the file and line of the user's code that raised it."""
    found = reason_of("", error, "")
    return f"{found.text} at {found.short_place}" if found.place else found.text


def describe(error: BaseException) -> str:
    """Return an error's class, and its text if it is one of ours, which never contain item data."""
    return f"{type(error).__name__}: {error}" if _is_ours(error) else type(error).__name__


def _is_ours(error: BaseException) -> bool:
    return type(error).__module__.startswith("streamkit.")


class Undecided(Exception):
    """An item stays as it is, and people have to say what is right; `kind` says why.

    What it is `about` is written down, too: see `FailedItems.note`.
    """

    def __init__(self, kind: str, text: str, **about: str) -> None:
        super().__init__(text)
        self.kind, self.about = kind, about


@dataclass
class ItemAttempts:
    """Attempts with the items of one migration; they read and write by `calls`.

    The first attempt with an item takes it as it was seen, unless that was wrong of one of the last
    items. It saves a read, and costs a write that is refused where the item, or its place, has
    changed.
    """

    calls: Calls
    failed: FailedItems
    _looks: int = 0

    async def persist(
        self,
        key: Key,
        attempt: Callable[[WireItem | None], Awaitable[Any]],
        seen: WireItem | None = None,
        *,
        trusting: bool = False,
    ) -> Tally:
        """Attempt something with an item until it is done; write down a final failure.

        `attempt` is given the item as it was `seen`, or None to read it, and returns the outcome,
        None if nothing was to be done. If `trusting`, what was seen is taken as it is even if that
        was wrong of other items.
        """
        if seen is not None and self._looks and not trusting:
            self._looks, seen = self._looks - 1, None
        tally, invalid = Tally(), False
        for number in range(_TRIES):
            read, seen = seen, None
            try:
                async with self.calls.reserved() if number else nullcontext():
                    outcome = await attempt(read)
            except Undecided as error:
                tally.add(await self.failed.note(key, error.kind, str(error), **error.about))
                return tally
            except (ConfigurationError, LeaseLost, Unavailable):
                raise  # it is not about this item
            except USER_ERRORS as error:
                tally.add(await self.failed.note(key, "transform", error))
                return tally
            if outcome is None:
                tally.skipped += 1
                return tally
            if outcome is DONE:
                tally.changed += 1
                return tally
            if read is not None and not trusting:
                self._looks = _LOOKS
            if outcome is GONE:
                tally.gone += 1
                return tally
            if isinstance(outcome, Invalid) and invalid:
                tally.add(await self.failed.note(key, "invalid", outcome.text))
                return tally
            # DynamoDB does not say of a transaction with an invalid action whether the item had
            # changed.
            invalid = isinstance(outcome, Invalid)
            tally.conflicts += 1
        text = f"it changed {_TRIES} times in a row"
        tally.add(await self.failed.note(key, "contended", text))
        return tally
