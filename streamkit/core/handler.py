"""Handlers: what `App` registers, in the one shape that dispatch runs.

Every kind of handler (a function, an aggregate, a fan-out, a mirror) becomes a `Handler`:
a name, what it listens to, and `run`, which turns one change into effects.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal, Protocol

import msgspec

from streamkit.changes import Change, Kind
from streamkit.effects import Effect, Result
from streamkit.entity import Entity
from streamkit.errors import DeclarationError
from streamkit.model.builds import Build
from streamkit.model.declaration import Declaration, by_known_fields, check_types
from streamkit.model.when import When
from streamkit.stream.decode import Record

OnFailure = Literal["park", "block", "skip"]
"""What happens to a change that still fails after its retries.

`park`: it is set aside in the table and later changes of its item queue behind it; all others flow
on. `block`: the shard waits and tries again until it succeeds. `skip`: it is counted and dropped.
"""


Shadow = bool | Literal["log"]
"""Whether a handler only shows what it would do: its effects are compared, or logged."""

Delivery = Literal["exactly_once", "at_least_once"]
"""What a handler says about I/O of its own: it does none, or what it does may be repeated."""

Sends = bool | Literal["perhaps"]
"""Whether a handler may return a `Send`: it says so, it says that it does not, or neither."""

Migrations = Literal["default", "deliver", "suppress"]
"""Whether a handler sees the changes that a migration makes.

By default they lead to effects in the table, but send nothing: fan-outs and handlers with I/O of
their own do not run for them, and the `Send`s of other handlers are left out.
"""

Payload = Literal["whole", "keys"]
"""What is stored of a parked change: its record, or the record without its images.

With `keys` the images stay in the stream alone: a redrive reads the record from there, which it can
for the 24 hours that the stream keeps it; afterwards the change can only be shown and discarded.
"""


@by_known_fields
@dataclass(frozen=True, slots=True)
class Policy:
    """How long a handler may take, and what happens when it fails.

    Inline: `attempts` counts the first one. The pause before the second is `backoff_seconds`, then
    it doubles; retries here are short because the item's later changes wait for them.

    Parked: the change is tried again `retry_seconds` later, then after three times as long each
    time, up to `retry_seconds_max`. After `retry_limit` such tries its parked queue is stuck, and
    waits for a person; with 0 it is stuck at once. `payload` is what is stored of the change.

    `breaker` lets `park` act as `block` while most changes of the handler fail on a worker: at
    least 20 within a minute and more than half of them.

    `hops_max` ends loops: a change that results from so many handlers' effects in a row is parked
    for good, under every `on_failure`.

    Raises:
        DeclarationError: a value has the wrong type, or is out of its range.
    """

    timeout_seconds: float = 10.0
    attempts: int = 3
    backoff_seconds: float = 0.1
    on_failure: OnFailure = "park"
    retry_seconds: float = 5.0
    retry_seconds_max: float = 900.0
    retry_limit: int = 10
    payload: Payload = "whole"
    breaker: bool = True
    hops_max: int = 10

    def __post_init__(self) -> None:
        check_types(self)
        if not self.timeout_seconds > 0:
            raise DeclarationError(f"Policy(timeout_seconds={self.timeout_seconds}): more than 0")
        if self.attempts < 1 or not self.backoff_seconds >= 0:
            raise DeclarationError(
                f"Policy(attempts={self.attempts}, backoff_seconds={self.backoff_seconds}):"
                " the first attempt counts, so at least 1, and pauses are not negative"
            )
        if self.hops_max < 1:
            raise DeclarationError(f"Policy(hops_max={self.hops_max}): at least 1")
        if not 0 < self.retry_seconds <= self.retry_seconds_max or self.retry_limit < 0:
            raise DeclarationError(
                f"Policy(retry_seconds={self.retry_seconds},"
                f" retry_seconds_max={self.retry_seconds_max}, retry_limit={self.retry_limit}):"
                " pauses are positive and do not shrink, and the limit is not negative"
            )


class Defer(Enum):
    """A handler returns this instead of effects to continue in the change's parked queue."""

    DEFER = "defer"


DEFER: Final = Defer.DEFER
"""The change is parked without a failure, due at once, and goes on beside the shard."""


AUDIENCE = "_audience"
"""The name of the table argument from which a fan-out reads its audience."""


class Broadcast(msgspec.Struct, frozen=True):
    """How a fan-out continues in its parked queue.

    `page(change, token, table, limit)` reads the recipients after a token, `one(name, table)` reads
    one of them again, and `serve(change, to, tools)` makes the effects for one. `rate` is the most
    recipients served in a second. `left(change, token, dynamodb, schema, calls)` counts those
    after a token.
    """

    page: Callable[..., Awaitable[Any]]
    one: Callable[..., Awaitable[Any]]
    serve: Callable[..., Awaitable[tuple[Effect, ...]]]
    rate: float | None = None
    left: Callable[..., Awaitable[int | None]] | None = None


class Totals(Protocol):
    """Sums up what changes add to items, without an effect for each change."""

    def deltas(self, old: Any, new: Any) -> Sequence[Any]:
        """Return what one change adds, and sum up nothing yet; raise what the handler raises."""

    def add(self, deltas: Sequence[Any]) -> None:
        """Sum up what `deltas` returned; this never fails."""

    def __len__(self) -> int:
        """Return how many items the changes add to."""

    @property
    def widest(self) -> int:
        """Return the most attributes that the changes add to in one item."""

    def effects(self) -> tuple[Effect, ...]:
        """Return one effect for each item, as if the changes were one.

        Raises:
            ArithmeticError: a sum cannot be stored.
        """


class Adder(ABC):
    """The `run` of a handler whose results only add up, also if other changes lie in between."""

    @abstractmethod
    def __call__(self, change: Change[Any], /) -> Result:
        """Return the effects of one change."""

    @abstractmethod
    def totals(self) -> Totals:
        """Return empty totals; their effects do the same as those of each change, one by one."""


@dataclass(frozen=True)
class Handler:
    """One registered handler.

    `run` is called with the change and what `needs` asks for; it is a coroutine function if
    `is_async`. `commutes` says that the order of an item's changes does not matter to it, so that a
    parked one holds up nothing. A new `definition` makes it another handler. `together` names what
    a change shares with others: changes of a page that share a name run one after the other, and
    each sees what the one before will write.

    `writes` are the entities that it may write, None if it does not say. `causes` are the kinds of
    change that its effects on each can lead to (all but expiries, if missing). `effects` is false
    if it says that it returns none, `sends` is true if it says that it may return a `Send`. A cycle
    through a handler that `converges` ends by itself; one through `cycle="bounded"` is intended. A
    handler that `sees_parts` knows what a change of a spread group's part means. A `shadow`
    handler's effects are not applied. A `raw` one takes images as items in wire form, including a
    migration's copies. `migrations` says whether it sees what migrations write.

    `names` are the entities that its annotations name: they also tell items apart. `fields` are the
    fields that it reads, None if it does not say; its images have these alone, and it sees a change
    of an item whose other fields do not fit.

    `in_build(build)` makes the handler that replaces it while that build of it is under way; that
    one has the number in `build`, and parks and retries under the same name. `contested` replaces
    it for a change once a condition of its result did not hold: it may read what a first run does
    not have to read, and returns effects of the same handler.
    """

    name: str
    entity: type[Entity]
    kinds: frozenset[Kind]
    run: Callable[..., Result | Defer | Awaitable[Result | Defer]]
    declared: Declaration
    is_async: bool = False
    when: When | None = None
    needs: dict[str, type[Any]] = field(default_factory=dict)
    policy: Policy = field(default_factory=Policy)
    commutes: bool = False
    is_aggregate: bool = False
    definition: str = ""
    writes: frozenset[type[Entity]] | None = None
    causes: Mapping[type[Entity], frozenset[Kind]] = field(default_factory=dict)
    effects: bool = True
    sends: Sends = False
    cycle: Literal["bounded"] | None = None
    converges: bool = False
    sees_parts: bool = False
    shadow: Shadow = False
    delivery: Delivery | None = None
    broadcast: Broadcast | None = None
    raw: bool = False
    migrations: Migrations = "default"
    together: Callable[[Change[Any]], Iterable[Hashable]] | None = None
    names: frozenset[type[Entity]] = frozenset()
    fields: tuple[str, ...] | None = None
    build: int = 0
    in_build: "Callable[[Build], Handler] | None" = None
    contested: "Handler | None" = None

    @property
    def delivered(self) -> Delivery:
        """Return how often it takes effect; if its effects write nothing, they are for sinks."""
        tells_sinks = self.effects and self.writes is not None and not self.writes
        return self.delivery or ("at_least_once" if tells_sinks else "exactly_once")

    @property
    def is_mirror(self) -> bool:
        """Return whether, as registered, it copies its source's latest state for any change."""
        return self.converges and AUDIENCE in self.needs

    @property
    def hears_migrations(self) -> bool:
        """Return whether it runs for changes that a migration makes."""
        if self.migrations != "default":
            return self.migrations == "deliver"
        notifies = self.broadcast is not None and not self.converges
        return not notifies and self.delivery != "at_least_once"


AsRun = Callable[[Handler, Record], Handler | None]
"""A function that returns the handler to run instead, for a record of this shard; None if none
runs."""


def as_registered(handler: Handler, record: Record) -> Handler | None:  # noqa: ARG001
    """Return the handler itself: it runs as it is registered."""
    return handler


def fingerprint_of(handlers: Iterable[Handler]) -> str:
    """Return the fingerprint of an app with these handlers."""
    parts = sorted(
        (
            handler.name,
            handler.entity.__name__,
            sorted(kind.name for kind in handler.kinds),
            handler.definition,
        )
        for handler in handlers
    )
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()
