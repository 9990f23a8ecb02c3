"""Attempt something with an item until it is done, or write down why it cannot be.

In: a coroutine that reads, and sends one conditional write or transaction. Out: what was done, in a
`Tally`. On failure: a record of the item that failed; what ends a run is raised.
"""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

from streamkit.errors import USER_ERRORS, ConfigurationError, LeaseLost, Unavailable
from streamkit.migrate.book.tallies import Tally
from streamkit.migrate.items.writes import Key, WireItem
from streamkit.migrate.sending.calls import DONE, GONE, Calls
from streamkit.migrate.sending.failing import FailedItems
from streamkit.progress.verdicts import Invalid

_TRIES = 20
"""Tries of one item that changes each time; its last change is in the stream, too."""


_LOOKS = 50
"""Items whose places are looked at, after one was not free, before the next is taken to be free."""


class Undecided(Exception):
    """An item stays as it is, and people have to say what is right; `kind` says why.

    What it is `about` is written down, too: see `FailedItems.note`.
    """

    def __init__(self, kind: str, text: str, **about: str) -> None:
        super().__init__(text)
        self.kind, self.about = kind, about


class FreePlaces:
    """Takes the places of targets to be free, unless that was wrong of one of the last items."""

    _looks = 0

    def attempt(
        self, seen: WireItem | None, attempt: Callable[[WireItem | None], Awaitable[Any]]
    ) -> Callable[[], Awaitable[Any]]:
        """Return attempts for `persist`; only the first is given an item that was just `seen`."""
        if seen is not None and self._looks:
            self._looks, seen = self._looks - 1, None

        async def next_one() -> Any:
            nonlocal seen
            read, seen = seen, None
            outcome = await attempt(read)
            if read is not None and outcome is not DONE and outcome is not None:
                self._looks = _LOOKS
            return outcome

        return next_one


async def persist(
    calls: Calls, failed: FailedItems, key: Key, tally: Tally, attempt: Callable[[], Awaitable[Any]]
) -> None:
    """Attempt something with an item until it is done; write down a final failure.

    Args:
        calls: what `attempt` reads and writes with.
        failed: where failures are written down.
        key: the key of the item.
        tally: the counts to add to.
        attempt: reads and writes; returns the outcome, None if there was nothing to do.
    """
    invalid = False
    for number in range(_TRIES):
        try:
            async with calls.reserved() if number else nullcontext():
                outcome = await attempt()
        except Undecided as error:
            await failed.note(key, tally, error.kind, str(error), **error.about)
            return
        except (ConfigurationError, LeaseLost, Unavailable):
            raise  # it is not about this item
        except USER_ERRORS as error:
            await failed.note(key, tally, "transform", error)
            return
        if outcome is None:
            tally.skipped += 1
            return
        if outcome is DONE:
            tally.changed += 1
            return
        if outcome is GONE:
            tally.gone += 1
            return
        if isinstance(outcome, Invalid) and invalid:
            await failed.note(key, tally, "invalid", outcome.text)
            return
        # DynamoDB does not say of a transaction with an invalid action whether the item had
        # changed.
        invalid = isinstance(outcome, Invalid)
        tally.conflicts += 1
    await failed.note(key, tally, "contended", f"it changed {_TRIES} times in a row")
