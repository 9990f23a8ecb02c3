"""Declare fan-outs: one change, many recipients, each with effects of its own.

    def watchers(change: Inserted[Deal]) -> Query[BrandWatch]:
        return BrandWatch.query(brand=change.new.brand)

    @app.fan_out(watchers, rate=500)
    def notify(change: Inserted[Deal], to: BrandWatch) -> Put[Message]:
        return Put(message_of(change.new, to.username)).only_if(absent, otherwise="omit")

A small audience is served in the change's own commit. For a larger one the change goes into its
parked queue, and the shard continues; the worker that owns the queue
serves page after page, each committed together with the place that it reaches (see `broadcasting`).
Recipients that come or go meanwhile may be served or not; none is served twice. The changes of one
source item are fanned out one after the other.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, get_args, get_origin, get_type_hints

from streamkit.changes import Change
from streamkit.core.handler import AUDIENCE, DEFER, Broadcast, Defer, Handler, Policy
from streamkit.effects import Effect, Put, Result, Send, as_effects
from streamkit.entity import Entity, Key
from streamkit.errors import DeclarationError, PoisonChange
from streamkit.kinds.annotation import read_annotation
from streamkit.kinds.fan_out import INLINE
from streamkit.kinds.fan_out.audience import (
    AudiencePage,
    AudienceReader,
    Recipient,
    may_be_audience,
)
from streamkit.kinds.on import names_of, needs_of, writes_of
from streamkit.model.declaration import Declaration
from streamkit.model.when import When
from streamkit.progress.actions import ItemRef, item_ref
from streamkit.table import Table

_EFFECTS_INLINE = 90
"""Effects at most, so that effects of other changes fit into the commit."""
_SENDS_INLINE = 10
"""Deliveries at most among the effects: they are made one after the other, before the commit."""


Serve = Callable[[Change[Any], Any, dict[str, Any]], Awaitable[tuple[Effect, ...]]]
"""Makes the effects for one recipient, from the change, the recipient and the tools."""


@dataclass(frozen=True)
class Inline:
    """Serves an audience in the change's own commit, if it is small."""

    page: Callable[..., Awaitable[AudiencePage]]
    serve: Serve
    most: int = INLINE

    async def run(self, change: Change[Any], **tools: Any) -> Result | Defer:
        """Serve a small audience at once; leave a larger one to the change's parked queue.

        Leave it there, too, if one recipient is poison, because there it does not delay the others;
        and if the run for one recipient has read what the effects of another one write: inline, all
        effects are one result, in which no run sees the effects of another; in the queue the runs
        follow each other.
        """
        table: Table = tools[AUDIENCE]
        audience = await self._small_audience(change, table)
        if audience is None:
            return DEFER
        effects: list[Effect] = []
        written: set[ItemRef] = set()
        for recipient in audience:
            if recipient.error is not None:
                return DEFER
            noted = len(table.reads_noted)
            try:
                served = await self.serve(change, recipient.to, tools)
            except PoisonChange:
                return DEFER
            if any(ref in written for ref in table.reads_noted[noted:]):
                return DEFER
            written.update(_written(served, table))
            effects += [_addressed(effect, recipient.name) for effect in served]
        sends = sum(isinstance(effect, Send) for effect in effects)
        return DEFER if len(effects) > _EFFECTS_INLINE or sends > _SENDS_INLINE else effects

    async def _small_audience(self, change: Change[Any], table: Table) -> list[Recipient] | None:
        """Return an audience by name of recipient; None if it is not small."""
        found: dict[str, Recipient] = {}
        token = None
        while True:
            page = await self.page(change, token, table, self.most + 1 - len(found))
            found |= {recipient.name: recipient for recipient in page.recipients}
            if len(found) > self.most:
                return None
            if page.next is None:
                return list(found.values())
            token = page.next


def _written(effects: Iterable[Effect], table: Table) -> Iterator[ItemRef]:
    """Yield the items that effects write, or check."""
    for effect in effects:
        key = effect.entity.item_key if isinstance(effect, Put) else getattr(effect, "key", None)
        if isinstance(key, Key):
            schema = table.of(effect.table).schema if effect.table else table.schema
            yield item_ref(schema, key.wire(schema))


def _addressed(effect: Effect, recipient: str) -> Effect:
    return effect.addressed(recipient) if isinstance(effect, Send) else effect


def server(function: Callable[..., Any], recipient: str) -> Serve:
    """Return what serves a recipient by a user's function, in its parameter `recipient`."""

    async def serve(change: Change[Any], to: Any, tools: dict[str, Any]) -> tuple[Effect, ...]:
        arguments = {name: tool for name, tool in tools.items() if name != AUDIENCE}
        result: Any = function(change, **{recipient: to}, **arguments)
        return as_effects(await result if inspect.isawaitable(result) else result)

    return serve


def check_audience(audience: Callable[..., Any]) -> None:
    """Refuse a handler that was decorated without an audience, and an audience of something else.

    Raises:
        DeclarationError: it takes more than a change and `after`, or its annotation says that it
            returns something else than queries and scans.
    """
    required = [
        parameter.name
        for parameter in inspect.signature(audience).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]
    if len(required) != 1 and required[1:] != ["after"]:
        raise DeclarationError(
            f"{Declaration.of(audience)}: name the recipients, as in @app.fan_out(audience); an"
            " audience takes a change, and as an async generator also after="
        )
    try:
        said = get_type_hints(audience).get("return", Any)
    except NameError:  # an annotation that only type checkers know
        return
    if inspect.iscoroutinefunction(audience) or not may_be_audience(said):
        plain = isinstance(said, type) and not get_args(said)
        raise DeclarationError(
            f"{Declaration.of(audience)}: an audience is a def that returns a Query, as in"
            f" Watch.query(...), a Scan or several of them, not {said.__name__ if plain else said}:"
            " streamkit reads the recipients itself; your own come from an async generator"
        )


def fan_out_handler(
    function: Callable[..., Any],
    audience: Callable[..., Any],
    *,
    name: str | None,
    when: When | None,
    rate: float | None,
    inline: int,
    policy: Policy,
) -> Handler:
    """Make a handler of a function of a change and a recipient.

    Raises:
        DeclarationError: a signature does not fit, or `rate` or `inline` are out of range.
    """
    declared = Declaration.of(function)
    if not 0 <= inline <= INLINE or (rate is not None and rate <= 0):
        raise DeclarationError(
            f"{declared}: inline={inline}, rate={rate}: inline is 0 to {INLINE}, a rate positive"
        )
    parameters, hints = _signature(function, declared)
    first, recipient = parameters[0].name, parameters[1].name
    kinds, entity = read_annotation(hints[first], declared)
    to, as_key = _recipient(hints[recipient])
    if not inspect.isasyncgenfunction(audience) and to is None:
        raise DeclarationError(
            f"{declared}: {recipient!r} is an entity or the Key of one, as the audience's queries"
            " yield; anything else comes from an async generator"
        )
    by_key = frozenset({to}) if as_key and to is not None else frozenset[type[Entity]]()
    reader = AudienceReader(audience, to, by_key, policy.timeout_seconds)
    serve = server(function, recipient)
    needs = needs_of(parameters[2:], hints, declared)
    writes = writes_of(hints, when, entity, declared)
    return Handler(
        name=name or function.__name__,
        entity=entity,
        kinds=kinds,
        run=Inline(reader.page, serve, inline).run,
        declared=declared,
        is_async=True,
        when=when,
        needs={**needs, AUDIENCE: Table},
        policy=policy,
        writes=None if writes.entities is None else frozenset(writes.entities),
        causes=writes.entities or {},
        effects=writes.effects,
        sends=writes.sends,
        names=names_of(hints),
        broadcast=Broadcast(reader.page, reader.one, serve, rate, reader.left),
    )


def _signature(
    function: Callable[..., Any], declared: Declaration
) -> tuple[list[inspect.Parameter], dict[str, Any]]:
    """Return the parameters, of which the first two are annotated, and all annotations."""
    parameters = list(inspect.signature(function).parameters.values())
    if len(parameters) < 2:
        raise DeclarationError(
            f"{declared}: it takes a change and a recipient, as in"
            " (change: Inserted[Deal], to: BrandWatch)"
        )
    hints = declared.hints(function)
    for parameter in parameters[:2]:
        if parameter.name not in hints:
            raise DeclarationError(f"{declared}: annotate {parameter.name!r}")
    return parameters, hints


def _recipient(annotation: Any) -> tuple[type[Entity] | None, bool]:
    """Return the recipients' entity (None if they have none), and whether handlers receive keys."""
    origin = get_origin(annotation)
    if origin is Key:
        (entity,) = get_args(annotation)
        return entity, True
    if isinstance(annotation, type) and issubclass(annotation, Entity):
        return annotation, False
    return None, False


def serving(handler: Handler, recipient: Recipient) -> Handler:
    """Return a plain handler that serves one recipient, which was read with the audience."""
    broadcast = handler.broadcast
    if broadcast is None:
        return handler

    async def run(change: Change[Any], **tools: Any) -> Result:
        if recipient.error is not None:
            raise recipient.error
        return await broadcast.serve(change, recipient.to, tools)

    return replace(handler, run=run, broadcast=None)


def serving_one(handler: Handler, name: str) -> Handler:
    """Return a plain handler that serves one recipient, which it reads by name when it runs."""
    broadcast = handler.broadcast
    if broadcast is None:
        return handler

    async def run(change: Change[Any], **tools: Any) -> Result:
        to = await broadcast.one(name, tools[AUDIENCE])
        return None if to is None else await broadcast.serve(change, to, tools)

    return replace(handler, run=run, broadcast=None)
