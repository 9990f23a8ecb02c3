"""Write down that an item could not be migrated, with what a person needs to mend it.

In: the key of an item, and an exception or a sentence. Out: its record, a count, and a log line,
which never holds item data. The message of the user's exception may hold some: it stays in the
record, with the file and line of the user's code that raised it, until a person asks for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from streamkit.core.parking import Failure
from streamkit.migrate.book.errors import ErrorBook, Reason, error_id
from streamkit.migrate.book.tallies import Tally
from streamkit.observe.logger import get_logger
from streamkit.progress.actions import Wire
from streamkit.progress.clock import Clock

log = get_logger("streamkit.migrate")


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
        key: Mapping[str, Wire],
        tally: Tally,
        kind: str,
        what: str | BaseException,
        *,
        name: str = "",
        shown: str = "",
        detail: str = "",
    ) -> None:
        """Write down that an item could not be brought into the new shape.

        Args:
            key: the key of the item.
            tally: the counts to add to.
            kind: the kind of error, for programs.
            what: the exception, or a sentence for people.
            name: the name of the record; by default the hash of the key.
            shown: a digest of what a person would decide about.
            detail: what a person sees of it on request.
        """
        tally.errors += 1
        name = name or error_id(key)
        known: dict[str, Any] = {"migration": self.writer, "kind": kind, "item": name}
        log.often("migration.item_failed", level="warning", by=kind, **known)
        reason = reason_of(kind, what, self.phase)
        reason = replace(reason, detail=detail or reason.detail)
        at = self.clock.time()
        tally.waived += await self.book.add(key, reason, at, name=name, shown=shown or self.run)


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
