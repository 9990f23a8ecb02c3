"""The error families, grouped by what the person or program that catches one should do.

Every error of streamkit is a `StreamkitError`. Catch a family, not a leaf:

* `ConfigurationError`: fix the declaration, the table or the settings, and start again.
* `RetryableError`: wait and try again; nothing is wrong with the data.
* `PoisonChange`: this change alone cannot be processed; it is parked, and other changes go on.
* `LeaseLost`: another worker owns the cursor now; stop quietly, nothing is lost.
* `RetentionLost`: stream records may be gone for good; a person decides.
* `InvariantError`: streamkit or the table's control items are wrong; stop and page someone.

Messages never hold item data: keys are hashed, images are never shown.
"""

from collections.abc import Sequence
from typing import Any, Final


class StreamkitError(Exception):
    """Something in streamkit went wrong."""


class ConfigurationError(StreamkitError, ValueError):
    """A declaration, a setting or the table does not fit; fix it and start again."""


class NotBegun(ConfigurationError):
    """A migration was never begun, so there is nothing to join, pause or take back."""


class DeclarationError(ConfigurationError):
    """An entity, handler, aggregate or app is declared wrongly; the message names its line."""


class RetryableError(StreamkitError):
    """The call may succeed later; a handler raises it to ask for another attempt.

    Args:
        args: what happened.
        why: what `sink.failed` may log of it, if a sink raises it: a text without an item's data.
    """

    def __init__(self, *args: object, why: str = "") -> None:
        super().__init__(*args)
        self.why = why


class Unavailable(RetryableError):
    """The table throttles or does not answer; a handler's read is repeated until it does."""


class StreamSilent(RetryableError):
    """The stream's service does not answer, so that its shards cannot be listed."""


class PoisonChange(StreamkitError):
    """This change cannot be processed however often it is tried; a handler raises it to park."""


class DecodeError(PoisonChange):
    """An image does not fit its entity; names the entity and fields, never the values."""


class TooManyHops(PoisonChange):
    """A change came through too many handlers in a row; it would go on for ever."""


class UndeclaredWrite(StreamkitError):
    """A handler returned an effect on an entity that its declaration does not name."""


class UnknownTable(RetryableError):
    """An effect or a read goes to a table that is not described yet; it is tried again later."""

    def __init__(self, table: str) -> None:
        super().__init__(f"table {table!r} is not known yet; name it in App(tables=[...])")
        self.table = table


class LeaseLost(StreamkitError):
    """The cursor has another owner or epoch; this worker drops all its work on it."""


class RetentionLost(StreamkitError):
    """Records of a shard were trimmed, or may have been, before this consumer read them.

    Args:
        text: what happened, for people; names no item.
        shard: which shard; empty if the whole stream is meant.
        after: the position up to which the shard was read.
        since: changes created before this have been read, in epoch seconds; 0 if nothing is known.
        until: changes created from then on are still to be read, in epoch seconds.
        certain: a record that was not processed is known to be gone. Otherwise it is a possible
            loss: it cannot be known whether there was one.
        gone: the shard cannot be read any more.
    """

    def __init__(
        self,
        text: str,
        *,
        shard: str = "",
        after: str = "",
        since: float = 0.0,
        until: float = 0.0,
        certain: bool = False,
        gone: bool = False,
    ) -> None:
        super().__init__(text)
        self.shard = shard
        self.after = after
        self.since = since
        self.until = until
        self.certain = certain
        self.gone = gone

    def told(self, text: str, **known: Any) -> "RetentionLost":
        """Return the same loss in other words, or with more that is known of it."""
        return RetentionLost(text, **{**vars(self), **known})


class InvariantError(StreamkitError):
    """Something impossible happened; the process stops rather than write on a wrong belief."""


def some_of(names: Sequence[str], most: int = 5) -> str:
    """Return names for a message, and how many more there are: `a, b and 7 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


USER_ERRORS: Final = (Exception, SystemExit)
"""What the user's code may raise for one change or item: `sys.exit()` in it is a failure as well,
because a process that ended by it would meet the same change again. Ctrl-C ends the process."""
