"""The typed gateway for reads: `get`, `batch_get`, `query` and `scan`, in entities.

    likes = await table.get(BrandLikes.key(brand="APPLE"))
    async for watch in table.query(BrandWatch.query(brand="APPLE")):

A handler gets one when its signature asks. It then sees the effects of earlier changes that are
not committed yet, and what it gets becomes a check in its result: if the item changes before the
commit, the handler runs again. `check=False` leaves that out. Queries and scans cannot be checked
(an item might appear); they see pending effects only on the table itself, not on an index.
"""

from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from decimal import Decimal
from typing import Any, TypeVar

from streamkit.actions import Action, ItemRef, Wire, item_ref
from streamkit.aws import AwsError, Trouble, code_of, fetch_all, trouble_of
from streamkit.codec import encode_key
from streamkit.decode import ImageDecoder
from streamkit.entity import Entity, spec_of
from streamkit.errors import Unavailable
from streamkit.fold import apply
from streamkit.keys import Index, Key, Query
from streamkit.reading import ReadTracker
from streamkit.schema import TableSchema

E = TypeVar("E", bound=Entity)
T = TypeVar("T")


class Table:
    """Reads items of one table as entities; gets are strongly consistent."""

    def __init__(
        self, dynamodb: Any, schema: TableSchema, tracker: ReadTracker | None = None
    ) -> None:
        self.schema = schema
        self._dynamodb = dynamodb
        self._tracker = tracker or ReadTracker()
        self._decoders: dict[type[Entity], ImageDecoder[Any]] = {}

    async def get(self, key: Key[E], *, check: bool = True) -> E | None:
        """Return the item with this key, or None.

        Raises:
            DecodeError: the item does not fit the entity.
        """
        ref = item_ref(self.schema, key.wire(self.schema))
        reply = await _available(
            self._dynamodb.get_item(
                TableName=self.schema.name, Key=key.wire(self.schema), ConsistentRead=True
            )
        )
        return self._seen(ref, key.entity, reply.get("Item"), check=check)

    async def batch_get(self, keys: Iterable[Key[E]], *, check: bool = True) -> dict[Key[E], E]:
        """Return those of the items that exist, by key."""
        wanted = {item_ref(self.schema, key.wire(self.schema)): key for key in keys}
        stored = await self._fetch([ref.key(self.schema) for ref in wanted])
        found: dict[Key[E], E] = {}
        for ref, key in wanted.items():
            item = self._seen(ref, key.entity, stored.get(ref), check=check)
            if item is not None:
                found[key] = item
        return found

    async def query(self, query: Query[E], *, consistent: bool | None = None) -> AsyncIterator[E]:
        """Yield a query's items in the order of their sort keys, reading as few pages as needed.

        On the table it is strongly consistent unless told otherwise, so that it sees what the
        page before has committed; on an index it is not, and on a global one it cannot be.

        Raises:
            DeclarationError: the table does not have the query's index.
            DecodeError: an item does not fit the entity.
        """
        request = self._query_request(query)
        request["ConsistentRead"] = query.index is None if consistent is None else consistent
        left = query.maximum
        pages = self._pages("query", request)
        written = [] if query.index is not None else self._written_under(query)
        async for item in self._merged(query, pages, written) if written else pages:
            entity = self._own(query.entity, item, on_table=query.index is None)
            if entity is None:
                continue
            yield entity
            if left is not None:
                left -= 1
                if left == 0:
                    return

    async def scan(self, entity: type[E], *, index: Index | None = None) -> AsyncIterator[E]:
        """Yield every item of an entity, by reading the whole table (or index).

        Items of other types are skipped, but read and paid for.
        """
        request: dict[str, Any] = {"TableName": self.schema.name}
        if index is not None:
            request["IndexName"] = index.name
        written = self._tracker.pending.refs() if index is None else set()
        async for item in self._pages("scan", request):
            if written:
                written.discard(item_ref(self.schema, item))
            if self._is_of(entity, item):
                found = self._own(entity, item, on_table=index is None)
                if found is not None:
                    yield found
        for ref in written:  # what is left is not in the table yet
            versions, actions = self._tracker.pending.of(ref)
            new = _applied(actions, None)
            if new is not None and self._is_of(entity, {**new, **ref.key(self.schema)}):
                self._tracker.note(ref, versions, entity, None, check=False)
                yield self._decode(entity, new)

    def _written_under(self, query: Query[Any]) -> list[ItemRef]:
        """Name the items that earlier changes have written where the query looks."""
        pk = encode_key(query.pk, self.schema.pk_type)
        return [
            ref
            for ref in self._tracker.pending.refs()
            if {ref.pk[0]: ref.pk[1]} == pk and _in_bounds(query, ref)
        ]

    async def _merged(
        self, query: Query[Any], pages: AsyncIterator[Any], written: list[ItemRef]
    ) -> AsyncIterator[Any]:
        """Read a query whole, so that items which exist only as pending effects find their place.

        An item that is not in the table yet is given by its key alone; `_own` fills in the rest.
        """
        found = {item_ref(self.schema, item): item async for item in pages}
        for ref in written:
            found.setdefault(ref, ref.key(self.schema))
        for ref in sorted(found, key=_sort_value, reverse=query.descending):
            yield found[ref]

    async def _pages(self, operation: str, request: dict[str, Any]) -> AsyncIterator[Any]:
        while True:
            reply = await _available(getattr(self._dynamodb, operation)(**request))
            for item in reply["Items"]:
                yield item
            if "LastEvaluatedKey" not in reply:
                return
            request = {**request, "ExclusiveStartKey": reply["LastEvaluatedKey"]}

    def _is_of(self, entity: type[Entity], item: Mapping[str, Wire]) -> bool:
        """Tell an entity's items from others as routing does: by type, else by key templates."""
        spec, schema = spec_of(entity), self.schema
        if schema.type_attribute is not None and schema.type_attribute in item:
            return bool(item[schema.type_attribute] == {"S": spec.type})
        if not spec.pk.matches(str(item[schema.pk].get("S", ""))):
            return False
        if schema.sk is None or spec.sk is None:
            return True
        return spec.sk.matches(str(item[schema.sk].get("S", "")))

    async def _fetch(self, keys: list[dict[str, Wire]]) -> dict[ItemRef, dict[str, Wire]]:
        items = await _available(fetch_all(self._dynamodb, self.schema.name, keys, patient=False))
        return {item_ref(self.schema, item): item for item in items}

    def _seen(
        self, ref: ItemRef, entity: type[E], stored: dict[str, Wire] | None, *, check: bool
    ) -> E | None:
        versions, actions = self._tracker.pending.of(ref)
        item = _applied(actions, stored)
        self._tracker.note(ref, versions, entity, stored, check=check)
        return None if item is None else self._decode(entity, item)

    def _own(self, entity: type[E], stored: Mapping[str, Wire], *, on_table: bool) -> E | None:
        item: dict[str, Wire] | None = dict(stored)
        if on_table and item is not None:
            ref = item_ref(self.schema, item)
            versions, actions = self._tracker.pending.of(ref)
            if versions:  # so that the handler runs again if they do not happen
                self._tracker.note(ref, versions, entity, None, check=False)
            if len(item) == len(self.schema.key_attributes) and actions:
                item = None  # it was found among the pending effects only
            item = _applied(actions, item)
        return None if item is None else self._decode(entity, item)

    def _decode(self, entity: type[E], item: Mapping[str, Wire]) -> E:
        decoder = self._decoders.get(entity)
        if decoder is None:
            decoder = self._decoders[entity] = ImageDecoder(entity, self.schema)
        decoded: E = decoder.decode_item(item)
        return decoded

    def _query_request(self, query: Query[Any]) -> dict[str, Any]:
        schema = self.schema
        request: dict[str, Any] = {"TableName": schema.name, "ScanIndexForward": True}
        if query.index is None:
            pk, sk = (schema.pk, schema.pk_type), None
            if schema.sk is not None and schema.sk_type is not None:
                sk = (schema.sk, schema.sk_type)
        else:
            request["IndexName"] = query.index.name
            pk, sk = query.index.key_attributes(schema)
        condition = "#pk = :pk"
        names, values = {"#pk": pk[0]}, {":pk": encode_key(query.pk, pk[1])}
        if sk is not None:
            bounds = {":prefix": query.sk_prefix, ":low": query.lower, ":high": query.upper}
            given = {name: text for name, text in bounds.items() if text is not None}
            if given:
                names["#sk"] = sk[0]
                values |= {name: encode_key(text, sk[1]) for name, text in given.items()}
                condition += " AND " + _sort_condition(given)
        request["KeyConditionExpression"] = condition
        request["ExpressionAttributeNames"] = names
        request["ExpressionAttributeValues"] = values
        request["ScanIndexForward"] = not query.descending
        if query.maximum is not None:
            request["Limit"] = query.maximum
        return request


async def _available(call: Awaitable[T]) -> T:
    try:
        return await call
    except AwsError as error:
        if trouble_of(error) in (Trouble.THROTTLED, Trouble.UNKNOWN):
            raise Unavailable(f"the table cannot be read just now: {code_of(error)}") from error
        raise


def _applied(actions: Iterable[Action], item: dict[str, Wire] | None) -> dict[str, Wire] | None:
    for action in actions:
        item = apply(action, item)
    return item


def _sort_value(ref: ItemRef) -> Any:
    return "" if ref.sk is None else _comparable(*ref.sk)


def _comparable(kind: str, text: Any) -> Any:
    return Decimal(text) if kind == "N" else text


def _in_bounds(query: Query[Any], ref: ItemRef) -> bool:
    if ref.sk is None:
        return True
    kind, text = ref.sk
    sort = _comparable(kind, text)
    if query.sk_prefix is not None and not text.startswith(encode_key(query.sk_prefix, kind)[kind]):
        return False
    low, high = (
        None if bound is None else _comparable(kind, encode_key(bound, kind)[kind])
        for bound in (query.lower, query.upper)
    )
    return (low is None or sort >= low) and (high is None or sort <= high)


def _sort_condition(given: Mapping[str, str]) -> str:
    if ":prefix" in given:
        return "begins_with(#sk, :prefix)"
    if ":low" in given and ":high" in given:
        return "#sk BETWEEN :low AND :high"
    return "#sk >= :low" if ":low" in given else "#sk <= :high"
