"""Attempt something with an item until it is done, or write down why it cannot be.

In: a coroutine that reads, and sends one conditional write or transaction. Out: what was done, in a
`Tally`. On failure: a record of the item that failed; what ends a run is raised.
"""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

from streamkit.errors import USER_ERRORS, ConfigurationError, LeaseLost, Unavailable
from streamkit.migrate.book.tallies import Tally
from streamkit.migrate.items.writes import Key
from streamkit.migrate.sending.calls import DONE, GONE, Calls
from streamkit.migrate.sending.failing import FailedItems
from streamkit.progress.verdicts import Invalid

_TRIES = 20
"""Tries of one item that changes each time; its last change is in the stream, too."""


class Undecided(Exception):
    """An item stays as it is, and people have to say what is right; `kind` says why.

    `name` is the name of the error's record, `shown` a digest of what people decide about, and
    `detail` its values, which only they see.
    """

    def __init__(
        self, kind: str, text: str, *, name: str = "", shown: str = "", detail: str = ""
    ) -> None:
        super().__init__(text)
        self.kind = kind
        self.name = name
        self.shown = shown
        self.detail = detail


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
            named = {"name": error.name, "shown": error.shown, "detail": error.detail}
            await failed.note(key, tally, error.kind, str(error), **named)
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
