"""App: what a team registers, checked before the first change is read.

    app = App("deals", table="BigTimeDeals")

    @app.aggregate
    class BrandLikes(Aggregate[BrandLike], pk="BRANDLIKES#{brand}", sk="BRANDLIKES#{brand}"): ...

    @app.on(when=became("status", "SHIPPED"))
    def shipped(change: Modified[Order]) -> Put[Notice]: ...

Names, types and templates are checked as they are declared; `check` holds the whole against a
table. Every mistake raises `DeclarationError` and names the declaration and its line.
"""

import hashlib
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar, overload

from streamkit.actions import CONTROL_PREFIX
from streamkit.declaration import Declaration
from streamkit.decode import Router
from streamkit.entity import Entity, spec_of
from streamkit.errors import DeclarationError
from streamkit.handler import Handler, OnFailure, Policy
from streamkit.kinds.aggregate import Aggregate, aggregate_handler
from streamkit.kinds.on import function_handler
from streamkit.loss import OnLoss, check_on_loss
from streamkit.schema import TableSchema
from streamkit.start import Start, check_start
from streamkit.when import When

F = TypeVar("F", bound=Callable[..., Any])
A = TypeVar("A", bound=type[Aggregate[Any]])
Lifespan = Callable[[], AsyncIterator[Any]]


class App:
    """The entities and handlers of one consumer of one table's stream.

    Args:
        name: names the consumer; its positions are kept under this name.
        table: the table whose stream is read and which effects are written to.
        type_attribute: the attribute that tells items' types apart; key templates do without one.
        control_table: where streamkit keeps its own items, instead of in `table`; it needs a
            string partition key.
        entities: entities without a handler that share key shapes with others.
        policy: time-out, attempts and failure policy of handlers that do not say otherwise.
        start: where the consumer starts: `trim_horizon`, the oldest record of the stream; `latest`;
            or a datetime. It counts when the consumer's first worker starts, and never again.
        on_loss: what happens when records may have been trimmed unread: `halt` the worker,
            `resume` at the oldest one there is, or an async function that is called with a `Loss`
            and a `Table` first.

    Raises:
        DeclarationError: the name, `start` or `on_loss` cannot be.
    """

    def __init__(
        self,
        name: str,
        *,
        table: str,
        type_attribute: str | None = None,
        control_table: str | None = None,
        entities: Iterable[type[Entity]] = (),
        policy: Policy | None = None,
        start: Start = "trim_horizon",
        on_loss: OnLoss = "halt",
    ) -> None:
        if not name or "#" in name:
            raise DeclarationError(f"App({name!r}): the name is part of keys; leave out '#'")
        check_start(start)
        check_on_loss(on_loss)
        self.name = name
        self.table = table
        self.start = start
        self.on_loss = on_loss
        self.type_attribute = type_attribute
        self.control_table = control_table
        self.handlers: list[Handler] = []
        self.declared = Declaration.here(f"App({name!r})")
        self._entities = list(entities)
        self._policy = policy or Policy()
        self._lifespan: Lifespan | None = None

    @overload
    def on(self, function: F, /) -> F: ...

    @overload
    def on(
        self,
        /,
        *,
        when: When | None = None,
        name: str | None = None,
        timeout: float | None = None,
        attempts: int | None = None,
        on_failure: OnFailure | None = None,
    ) -> Callable[[F], F]: ...

    def on(
        self,
        function: F | None = None,
        /,
        *,
        when: When | None = None,
        name: str | None = None,
        timeout: float | None = None,
        attempts: int | None = None,
        on_failure: OnFailure | None = None,
    ) -> F | Callable[[F], F]:
        """Register a function that turns a change into effects.

        The annotation of its first parameter says which changes: `Inserted[Deal]`, a union, or
        `Change[Deal]` for all. `def` for a pure function, `async def` for one that reads.

        Args:
            function: the handler, when used without parentheses.
            when: a condition on fields (`changed`, `became`, `crossed`), looked at before the rest
                of the images is decoded.
            name: names the handler in the table; the function's name by default. Keep it when
                you rename the function, or parked changes lose their handler.
            timeout: seconds that one attempt of an `async def` handler may take.
            attempts: how often it is tried at once, the first time included.
            on_failure: `park`, `block` or `skip`.

        Raises:
            DeclarationError: the signature, a field of `when` or the name does not fit.
        """

        def register(target: F) -> F:
            policy = self._changed_policy(timeout, attempts, on_failure)
            self._add(function_handler(target, name=name, when=when, policy=policy))
            return target

        return register if function is None else register(function)

    def aggregate(self, aggregate: A, /) -> A:
        """Register an aggregate; its items are kept exactly in step with their source.

        Raises:
            DeclarationError: it has no measure, no `group` or no source, or its name is taken.
        """
        self._add(aggregate_handler(aggregate, self._policy))
        self._entities.append(aggregate)
        return aggregate

    def lifespan(self, function: F) -> F:
        """Register an async generator that yields what handlers ask for by type.

        It runs once a process: what is before the `yield` at start, the rest at the end.
        """
        self._lifespan = function
        return function

    def _changed_policy(
        self, timeout: float | None, attempts: int | None, on_failure: OnFailure | None
    ) -> Policy:
        if attempts is not None and attempts < 1:
            raise DeclarationError(f"attempts={attempts}: the first attempt counts, so at least 1")
        default = self._policy
        return replace(
            default,
            timeout_seconds=default.timeout_seconds if timeout is None else timeout,
            attempts=attempts or default.attempts,
            on_failure=on_failure or default.on_failure,
        )

    def _add(self, handler: Handler) -> None:
        for other in self.handlers:
            if other.name == handler.name:
                raise DeclarationError(
                    f"{handler.declared}: a handler named {handler.name!r} exists already, at"
                    f" {other.declared}; give one of them name="
                )
        spec_of(handler.entity)
        self.handlers.append(handler)

    @property
    def entities(self) -> tuple[type[Entity], ...]:
        """Every entity that the app knows, each once."""
        return tuple(dict.fromkeys([*self._entities, *(h.entity for h in self.handlers)]))

    def resources(self) -> AbstractAsyncContextManager[tuple[Any, ...]]:
        """Open what `lifespan` yields, as a tuple."""
        return _open(self._lifespan)

    def router(self, schema: TableSchema) -> Router:
        """Make the router that tells this app's records apart.

        Raises:
            DeclarationError: two entities cannot be told apart on this table.
        """
        return Router(self.entities, schema, CONTROL_PREFIX)

    def fingerprint(self) -> str:
        """Return a digest of the handlers and definitions; a new one starts a new generation."""
        parts = sorted(
            (
                handler.name,
                handler.entity.__name__,
                sorted(kind.name for kind in handler.kinds),
                handler.definition,
            )
            for handler in self.handlers
        )
        return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


@asynccontextmanager
async def _open(lifespan: Lifespan | None) -> AsyncIterator[tuple[Any, ...]]:
    if lifespan is None:
        yield ()
        return
    async with asynccontextmanager(lifespan)() as resources:
        yield resources if isinstance(resources, tuple) else (resources,)
