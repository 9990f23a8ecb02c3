"""Calls: single reads, conditional writes and transactions of a migration, paced and repeated.

In: requests with a condition of their own, so that sending one twice does no harm. Out: what became
of it: `DONE`; `Changed` with the item as it is now, because a condition did not hold; `Invalid`
with the service's code, because it never will. On failure: throttling and unknown fates are tried
again for as long as it takes; missing permissions raise `ConfigurationError` and end the run.
"""

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final

import anyio

from streamkit.actions import Wire
from streamkit.aws import AwsError, Trouble, code_of, trouble_of
from streamkit.errors import ConfigurationError
from streamkit.migrate.rate import Kind, Rate
from streamkit.migrate.transform import Image, TransformError
from streamkit.migrate.view import Permit
from streamkit.model.codec import encode
from streamkit.model.schema import TableSchema
from streamkit.processing.verdicts import Again, Invalid, Refused, judge

_PAUSES = (0.1, 5.0)
_CONFLICT_SECONDS = 0.05
_TERMS_MAX = 145
"""An expression takes 300 operators and functions; each term is one, and so is the AND before it.
What is added to the condition on what was read has to fit, too."""
_TEXT_MAX = 4000
"""An expression is 4 KB at most."""


class Fate(Enum):
    """What else can become of a write than that it is refused."""

    DONE = "done"


DONE: Final = Fate.DONE


Outcome = Fate | Refused | Invalid


class Terms:
    """The names and values of one request's expressions."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.values: dict[str, Wire] = {}

    def name(self, attribute: str) -> str:
        """Return the placeholder of an attribute."""
        for placeholder, known in self.names.items():
            if known == attribute:
                return placeholder
        placeholder = f"#{len(self.names)}"
        self.names[placeholder] = attribute
        return placeholder

    def value(self, value: Wire) -> str:
        """Return a placeholder for a value."""
        placeholder = f":{len(self.values)}"
        self.values[placeholder] = value
        return placeholder

    def equals(self, attribute: str, value: Wire | None) -> str:
        """Return the condition that an attribute has a value, or is not there."""
        if value is None:
            return f"attribute_not_exists({self.name(attribute)})"
        return f"{self.name(attribute)} = {self.value(value)}"

    def request(self, **expressions: str) -> dict[str, Any]:
        """Return the members of a request that the expressions need."""
        found: dict[str, Any] = {name: text for name, text in expressions.items() if text}
        if self.names:
            found["ExpressionAttributeNames"] = self.names
        if self.values:
            found["ExpressionAttributeValues"] = self.values
        return found


def unchanged(terms: Terms, schema: TableSchema, image: Image, reads: frozenset[str]) -> str:
    """Return the condition that an item is there and is what was read, in these attributes.

    Raises:
        TransformError: too many attributes for one expression.
    """
    parts = [f"attribute_exists({terms.name(schema.pk)})"]
    for attribute in sorted(reads - schema.key_attributes):
        there = encode(image[attribute]) if attribute in image else None
        parts.append(terms.equals(attribute, there))
    text = " AND ".join(parts)
    if len(parts) > _TERMS_MAX or len(text) > _TEXT_MAX:
        raise TransformError(
            f"{len(reads)} attributes are read, more than one condition can hold; let the migration"
            " take the fields that it needs"
        )
    return text


class Calls:
    """The calls of one process; with a `permit`, nothing is written once the phase is over."""

    def __init__(self, dynamodb: Any, rate: Rate, permit: Permit | None = None) -> None:
        self._dynamodb = dynamodb
        self._permit = permit
        self.rate = rate

    async def scan(self, **request: Any) -> dict[str, Any]:
        """Read a page."""
        return await self._read(self._dynamodb.scan, request)

    async def get(self, table: str, key: Mapping[str, Wire]) -> dict[str, Wire] | None:
        """Read one item, strongly consistent."""
        request = {"TableName": table, "Key": dict(key), "ConsistentRead": True}
        reply = await self._read(self._dynamodb.get_item, request)
        found: dict[str, Wire] | None = reply.get("Item")
        return found

    async def query(self, **request: Any) -> list[dict[str, Wire]]:
        """Read a query whole, strongly consistent."""
        items: list[dict[str, Wire]] = []
        request = {**request, "ConsistentRead": True}
        while True:
            reply = await self._read(self._dynamodb.query, request)
            items += reply["Items"]
            if "LastEvaluatedKey" not in reply:
                return items
            request["ExclusiveStartKey"] = reply["LastEvaluatedKey"]

    async def update(self, **request: Any) -> Outcome:
        """Send an `UpdateItem` that has a condition."""
        return await self._write(self._dynamodb.update_item, request)

    async def delete(self, **request: Any) -> Outcome:
        """Send a `DeleteItem` that has a condition."""
        return await self._write(self._dynamodb.delete_item, request)

    async def transact(self, items: Sequence[dict[str, Any]]) -> Outcome:
        """Send a transaction, every action of which has a condition."""
        for item in items:
            for body in item.values():
                body["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        token = uuid.uuid4().hex
        call = partial(
            self._dynamodb.transact_write_items,
            TransactItems=list(items),
            ClientRequestToken=token,
            ReturnConsumedCapacity="INDEXES",
        )
        bodies = [body for item in items for body in item.values()]
        reply = await self._send(call, bodies)
        if isinstance(reply, Refused | Invalid):
            return reply
        self.rate.charge(reply.get("ConsumedCapacity"))
        return DONE

    async def _read(
        self, call: Callable[..., Awaitable[dict[str, Any]]], request: dict[str, Any]
    ) -> dict[str, Any]:
        paid = {**request, "ReturnConsumedCapacity": "INDEXES"}
        reply = await self._patiently("read", partial(call, **paid))
        if isinstance(reply, Refused | Invalid):
            raise ConfigurationError(f"the table refuses a read: {reply}")
        self.rate.charge(reply.get("ConsumedCapacity"))
        return reply

    async def _write(
        self, call: Callable[..., Awaitable[dict[str, Any]]], request: dict[str, Any]
    ) -> Outcome:
        paid = {
            **request,
            "ReturnConsumedCapacity": "INDEXES",
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        reply = await self._send(partial(call, **paid), [request])
        if isinstance(reply, Refused | Invalid):
            return reply
        self.rate.charge_write(reply.get("ConsumedCapacity"))
        return DONE

    async def _send(
        self, call: Callable[[], Awaitable[dict[str, Any]]], bodies: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any] | Refused | Invalid:
        """Send a write; one that was on its way while its phase went by is looked at again."""
        try:
            return await self._patiently("write", call)
        finally:
            if self._permit is not None:
                places = [(body["TableName"], body.get("Key") or body["Item"]) for body in bodies]
                await self._permit.settle(places)

    async def _patiently(
        self, kind: Kind, call: Callable[[], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any] | Refused | Invalid:
        pause, longest = _PAUSES
        while True:
            reserved, refused = await self.rate.ready(kind), False
            try:
                if kind == "write" and self._permit is not None:
                    await self._permit.require()
                return await call()
            except AwsError as error:
                verdict = self._verdict(error)
                refused = verdict is not None
                if verdict is not None:
                    return verdict
                trouble = trouble_of(error)
            finally:
                self.rate.settle(kind, reserved, cost=refused)
            if trouble is Trouble.CONFLICT or trouble is Trouble.CANCELED:
                await anyio.sleep(_CONFLICT_SECONDS)
                continue
            await anyio.sleep(pause)
            pause = min(2 * pause, longest)

    def _verdict(self, error: Exception) -> Refused | Invalid | None:
        """Return what an error means for good; None means that it is worth another try."""
        verdict = judge(error)
        if isinstance(verdict, Again):
            if verdict.throttled:
                self.rate.ease("throttled")
            return None
        if verdict is not None:
            return verdict
        raise ConfigurationError(
            f"the table refuses a call: {code_of(error)}; check the credentials' permissions and"
            " the table's name"
        ) from error
