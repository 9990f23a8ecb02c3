"""Read the recipients of a fan-out, page by page, from any place on.

An audience is a query, several (the partitions of a sharded collection), a scan of a sparse index,
or an async generator of the user's. In: what the user's function returned for a change, and a
token. Out: recipients, each with the token to continue after it: a text that is kept in the table.
"""

import base64
import inspect
import json
import math
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, TypeAlias, Union, get_args, get_origin

import anyio
import msgspec
from pydantic import BaseModel

from streamkit.changes import Change, ItemKey
from streamkit.core.querying import page_request
from streamkit.entity import Entity, Key, Query
from streamkit.errors import DecodeError
from streamkit.model.codec import decode
from streamkit.model.declaration import named
from streamkit.model.queries import Scan
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import Wire
from streamkit.table import Table

Source: TypeAlias = Query[Any] | Scan[Any]
Audience: TypeAlias = Union[  # noqa: UP007 - read by people
    Source, Sequence[Source], AsyncIterator[tuple[str, Any]], None
]
"""What an audience function may return.

A generator yields a token and a recipient each time. It is called with `after=`, the token of the
last recipient that is done, or None.
"""


@dataclass(frozen=True, slots=True)
class Recipient:
    """One of an audience: what the handler receives, and the token to continue after it.

    `name` identifies a recipient within one fan-out. `item` is its key in the table, if it has one;
    `stored` is the whole item, if it was read strongly consistent. `error` says why the handler
    cannot receive it.
    """

    to: Any
    token: str
    name: str
    item: ItemKey | None = None
    error: DecodeError | None = None
    stored: Mapping[str, Wire] | None = None


@dataclass(frozen=True, slots=True)
class AudiencePage:
    """Some recipients, and the token after them; None when no recipient follows."""

    recipients: Sequence[Recipient]
    next: str | None


class AudienceReader(msgspec.Struct, frozen=True):
    """Reads the audiences of one fan-out; items of the entities in `by_key` are passed as keys.

    A generator has `seconds` for a page: what it has yielded by then is the page.
    """

    audience: Callable[..., Any]
    entity: type[Entity] | None
    by_key: frozenset[type[Entity]] = frozenset()
    seconds: float = math.inf

    async def page(
        self, change: Change[Any], token: str | None, table: Table, limit: int
    ) -> AudiencePage:
        """Read the recipients after a token, at most `limit`; a page may be empty.

        Raises:
            TypeError: the audience function returned something else.
            TimeoutError: no recipient came in time.
        """
        if inspect.isasyncgenfunction(self.audience):
            return await self._generated(change, token, limit)
        sources = as_sources(self.audience(change))
        number, after = _read_token(token)
        if number >= len(sources):
            return AudiencePage((), None)
        source = sources[number]
        items, last = await table.page(source, after=after, limit=limit)
        found = [self._recipient(number, source, item, table) for item in items]
        if last is not None:
            return AudiencePage(found, _token(number, last))
        more = number + 1 < len(sources)
        return AudiencePage(found, _token(number + 1, None) if more else None)

    async def left(
        self, change: Change[Any], token: str | None, dynamodb: Any, schema: TableSchema, calls: int
    ) -> int | None:
        """Count the recipients after a token; None if `calls` are too few, or nothing can be asked.

        Raises:
            TypeError: the audience function returned something else.
        """
        if inspect.isasyncgenfunction(self.audience):
            return None  # only its function knows
        number, after = _read_token(token)
        left = 0
        for source in as_sources(self.audience(change))[number:]:
            call = dynamodb.query if isinstance(source, Query) else dynamodb.scan
            while calls:
                reply = await call(**page_request(source, schema, after), Select="COUNT")
                calls, left, after = calls - 1, left + reply["Count"], reply.get("LastEvaluatedKey")
                if after is None:
                    break
            else:
                return None
        return left

    async def one(self, name: str, table: Table) -> Any | None:
        """Return the recipient of this name, read again; None if it is not in the table any more.

        Raises:
            LookupError: recipients of a generator cannot be found again.
        """
        if self.entity is None:
            raise LookupError("a generator's recipient cannot be read again")
        pk, sk = json.loads(name)
        key = Key(self.entity, pk, sk)
        if self.entity in self.by_key:
            return key
        return await table.get(key, check=False)

    def _recipient(
        self, number: int, source: Source, item: Mapping[str, Wire], table: Table
    ) -> Recipient:
        token = _token(number, table.place_of(source, item))
        name, key = json.dumps(_plain_key(item, table)), _item_key(item, table)
        try:
            to, stored = self._given(source, item, table), None if source.index else item
            return Recipient(to, token, name, key, stored=stored)
        except DecodeError as error:
            return Recipient(None, token, name, key, error)

    async def _generated(self, change: Change[Any], token: str | None, limit: int) -> AudiencePage:
        found: list[Recipient] = []
        generator, tokens = self.audience(change, after=token), set[str]()
        try:
            with anyio.move_on_after(self.seconds) as scope:
                async for place, to in generator:
                    if place == token or place in tokens:
                        text = "an audience yields a token twice, so it could not continue after it"
                        raise ValueError(text)
                    token = place
                    tokens.add(place)
                    found.append(Recipient(to, place, place))
                    if len(found) == limit:
                        return AudiencePage(found, place)
        finally:
            await generator.aclose()
        if scope.cancelled_caught and not found:
            raise TimeoutError(
                f"no recipient came from the audience within {self.seconds:g} seconds"
            )
        return AudiencePage(found, token if scope.cancelled_caught else None)

    def _given(self, source: Source, item: Mapping[str, Wire], table: Table) -> Any:
        if source.entity not in self.by_key:
            return table.entity_of(source.entity, item)
        pk, sk = _plain_key(item, table)
        return Key(source.entity, pk, sk)


def as_sources(audience: Any) -> Sequence[Source]:
    """Normalise what an audience function returned.

    Raises:
        TypeError: it is neither queries nor scans.
    """
    if audience is None:
        return ()
    sources = (audience,) if isinstance(audience, Query | Scan) else tuple(audience)
    for source in sources:
        if not isinstance(source, Query | Scan):
            raise TypeError(
                f"an audience returns a Query, as in Watch.query(...), a Scan or several of them,"
                f" not {named(source)}: streamkit reads the recipients itself"
            )
        if isinstance(source, Query) and source.maximum is not None:
            raise TypeError("an audience is read whole: its query has no limit")
    return sources


def may_be_audience(annotation: Any) -> bool:
    """Return whether an annotation may mean queries and scans, or a generator."""
    annotation = getattr(annotation, "__value__", annotation)  # `type X = ...`
    origin, arguments = get_origin(annotation) or annotation, get_args(annotation)
    if origin in (Union, UnionType):
        return all(map(may_be_audience, arguments))
    if origin in (Any, None, NoneType, object) or not isinstance(origin, type):
        return True  # there is no annotation, or it is Any
    if issubclass(origin, Query | Scan | AsyncIterable):
        return True
    several = issubclass(origin, Iterable) and not issubclass(origin, BaseModel | str | Mapping)
    return several and all(one is Ellipsis or may_be_audience(one) for one in arguments)


def _plain_key(item: Mapping[str, Wire], table: Table) -> tuple[str, str | None]:
    """Return the texts of an item's key, as `Key` holds them."""
    schema = table.schema
    ((_, pk),) = item[schema.pk].items()
    if schema.sk is None:
        return _key_text(pk), None
    ((_, sk),) = item[schema.sk].items()
    return _key_text(pk), _key_text(sk)


def _key_text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _item_key(item: Mapping[str, Wire], table: Table) -> ItemKey:
    schema = table.schema
    sk = None if schema.sk is None else decode(item[schema.sk])
    return ItemKey(decode(item[schema.pk]), sk)


def _token(number: int, after: Mapping[str, Wire] | None) -> str:
    """Encode a place: the number of the source, and the item of it to continue after."""
    place = None
    if after is not None:
        place = {
            name: {kind: _as_text(value) for kind, value in wire.items()}
            for name, wire in after.items()
        }
    return json.dumps([number, place], separators=(",", ":"), sort_keys=True)


def _as_text(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _read_token(token: str | None) -> tuple[int, dict[str, Wire] | None]:
    if token is None:
        return 0, None
    number, place = json.loads(token)
    if place is None:
        return number, None
    return number, {
        name: {kind: base64.b64decode(text) if kind == "B" else text for kind, text in wire.items()}
        for name, wire in place.items()
    }
