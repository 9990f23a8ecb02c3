"""Registration: how handlers, aggregates, mirrors and sinks are added to an app.

Each decorator checks its arguments and makes the one shape that dispatch runs; see `handler`. A
kind of handler is imported when an app has one: functions on Lambda import the app whenever they
start cold.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from streamkit.core.handler import Delivery, Migrations, OnFailure, Policy, Shadow
from streamkit.entity import Entity, Key
from streamkit.errors import DeclarationError
from streamkit.kinds.declared_aggregates import DeclaredAggregates
from streamkit.kinds.declared_migrations import DeclaredMigrations
from streamkit.kinds.fan_out import INLINE
from streamkit.kinds.on import function_handler, with_statements
from streamkit.model.declaration import by_known_names
from streamkit.model.when import When
from streamkit.sinks.sink import Sink
from streamkit.stream.start import Start

if TYPE_CHECKING:
    from streamkit.kinds.derive import Conflict, Derivation
    from streamkit.kinds.mirror import Gone

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound=Sink)


class Registration(DeclaredAggregates, DeclaredMigrations):
    """The registrations of one consumer: the part of an `App` that its decorators fill."""

    name: str

    def __init__(self, entities: Iterable[type[Entity]], policy: Policy) -> None:
        DeclaredAggregates.__init__(self, entities, policy)
        DeclaredMigrations.__init__(self)
        self.sinks: list[Sink] = []
        self._derivations: dict[str, Derivation] = {}

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
        writes: Iterable[type[Entity]] | None = None,
        cycle: Literal["bounded"] | None = None,
        shadow: Shadow = False,
        delivery: Delivery | None = None,
        migrations: Migrations = "default",
        start: Start | str | None = None,
    ) -> Callable[[F], F]: ...

    @by_known_names("@app.on(...)")
    def on(  # noqa: PLR0913 - each says one thing of the handler
        self,
        function: F | None = None,
        /,
        *,
        when: When | None = None,
        name: str | None = None,
        timeout: float | None = None,
        attempts: int | None = None,
        on_failure: OnFailure | None = None,
        writes: Iterable[type[Entity]] | None = None,
        cycle: Literal["bounded"] | None = None,
        shadow: Shadow = False,
        delivery: Delivery | None = None,
        migrations: Migrations = "default",
        start: Start | str | None = None,
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
            writes: the entities of the app's table that it may write, where its return annotation
                does not say (or is too narrow); another one then fails.
            cycle: `bounded` if handlers that feed each other through this one come to an end.
            shadow: run it and compare its effects with the table instead of applying them; with
                `log` they are only logged.
            delivery: `at_least_once` says that it does I/O of its own, and that a repetition is
                fine there: `change.idempotency_key` stays the same.
            migrations: `deliver` the changes that migrations make, or `suppress` them all; by
                default only effects that notify people or systems are left out.
            start: run it for every change since then, such as `2026-10-01`: as a consumer of its
                own, `APP.NAME`, that reads the archive first and stays one.

        Raises:
            DeclarationError: the signature, a field of `when`, the name or the start does not fit.
        """

        def register(target: F) -> F:
            policy = self._changed_policy(timeout, attempts, on_failure)
            handler = function_handler(target, name=name, when=when, policy=policy)
            said = with_statements(
                handler, writes, cycle, migrations, shadow=shadow, delivery=delivery
            )
            self._beginning(said, start).add_handler(said)
            return target

        return register if function is None else register(function)

    @by_known_names("@app.fan_out(...)")
    def fan_out(  # noqa: PLR0913 - each says one thing of the handler
        self,
        audience: Callable[..., Any],
        /,
        *,
        when: When | None = None,
        name: str | None = None,
        rate: float | None = None,
        inline: int = INLINE,
        timeout: float | None = None,
        attempts: int | None = None,
        writes: Iterable[type[Entity]] | None = None,
        cycle: Literal["bounded"] | None = None,
        migrations: Migrations = "default",
        start: Start | str | None = None,
    ) -> Callable[[F], F]:
        """Register a function of a change and one recipient; it runs for each of an audience.

        Args:
            audience: a function of the change that returns a `Query`, several, or a `Scan` of an
                index; or an async generator of the change and `after=`, that yields a token and a
                recipient each time, and goes on after the recipient of the token it is given.
            when: as for `on`.
            name: as for `on`.
            rate: recipients a second at most, for all fan-outs of this handler on a worker.
            inline: audiences up to this size are served in the change's own commit.
            timeout: seconds for one recipient, for an inline audience, and for a page of one that
                is generated.
            attempts: how often one recipient is tried at once, the first time included.
            writes: as for `on`.
            cycle: as for `on`.
            migrations: as for `on`.
            start: as for `on`.

        Raises:
            DeclarationError: a signature or a value does not fit.
        """
        from streamkit.kinds.fan_out.fan_out import check_audience, fan_out_handler

        check_audience(audience)

        def register(target: F) -> F:
            policy = self._changed_policy(timeout, attempts, None)
            handler = fan_out_handler(
                target, audience, name=name, when=when, rate=rate, inline=inline, policy=policy
            )
            said = with_statements(handler, writes, cycle, migrations)
            self._beginning(said, start).add_handler(said)
            return target

        return register

    @by_known_names("@app.mirror(...)")
    def mirror(
        self,
        *,
        copies: Callable[[Any], Any],
        source: Callable[[Any], Key[Any] | None],
        when: When | None = None,
        name: str | None = None,
        gone: "Gone" = "keep",
        timeout: float | None = None,
        attempts: int | None = None,
    ) -> Callable[[F], F]:
        """Register a function of a source and a copy; it sets what the copy takes from the source.

        Args:
            copies: returns the `Query` (or several) that finds the copies of a source.
            source: returns the key of a copy's source, or None.
            when: a condition on the source's change, such as `changed("name")`.
            name: as for `on`; the handler of the copies' changes is called `<name>.copies`.
            gone: `keep` or `delete` the copies of a source that does not exist.
            timeout: as for `on`.
            attempts: as for `on`.

        Raises:
            DeclarationError: the function does not take a source and a copy.
        """
        from streamkit.kinds.mirror import mirror_handlers, read_mirror

        def register(target: F) -> F:
            mirror = read_mirror(target, name=name, copies=copies, source=source, gone=gone)
            policy = self._changed_policy(timeout, attempts, None)
            for handler in mirror_handlers(mirror, when, policy):
                self.add_handler(handler)
            return target

        return register

    @overload
    def derive(self, function: F, /) -> F: ...

    @overload
    def derive(
        self, /, *, name: str | None = None, conflict: "Conflict" = "park"
    ) -> Callable[[F], F]: ...

    @by_known_names("@app.derive(...)")
    def derive(
        self,
        function: F | None = None,
        /,
        *,
        name: str | None = None,
        conflict: "Conflict" = "park",
    ) -> F | Callable[[F], F]:
        """Register a function of an item that returns the items derived from it.

        Args:
            function: the handler, when used without parentheses.
            name: as for `on`.
            conflict: `park` a change whose derived item finds its place taken, or `skip` the item.

        Raises:
            DeclarationError: the function does not take one entity.
        """
        from streamkit.kinds.derive import derive_handler

        def register(target: F) -> F:
            self.add_handler(
                derive_handler(
                    target,
                    name=name,
                    conflict=conflict,
                    policy=self._policy,
                    siblings=self._derivations,
                )
            )
            return target

        return register if function is None else register(function)

    def sink(self, sink: S, /) -> S:
        """Register a sink, which `Send` effects name.

        Raises:
            DeclarationError: the app has one of this name.
        """
        if any(known.name == sink.name for known in self.sinks):
            raise DeclarationError(f"App({self.name!r}) has a sink {sink.name!r} already")
        self.sinks.append(sink)
        return sink
