"""Send single reads, conditional writes and transactions of a migration, with a rate and retries.

In: actions with a condition of their own, so that sending one twice does no harm. Out: the outcome:
`DONE`; `RefusedCommit` with the item as it is now, because a condition did not hold; `Invalid` with
the service's code, because it never will. On failure: throttled calls and calls of unknown outcome
are retried for as long as it takes; missing permissions raise `ConfigurationError` and end the run.
The calls of a `Charged` client do not wait for the rate: later ones pay for them.
"""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from enum import Enum
from functools import partial
from typing import Any, Final

from streamkit.aws import AwsError, ErrorKind, trouble_of, until_known
from streamkit.errors import ConfigurationError
from streamkit.migrate.sending.rate import Kind, Rate, Reserved
from streamkit.migrate.sending.view import Permit
from streamkit.model.origin import ORIGIN
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import Action, Wire, render
from streamkit.progress.fetch import pages_of
from streamkit.progress.transaction import refused
from streamkit.progress.verdicts import Again, Invalid, RefusedCommit, judge


class Fate(Enum):
    """The outcome of a write that was not refused, or found no item any more."""

    DONE = "done"
    GONE = "gone"


DONE: Final = Fate.DONE
GONE: Final = Fate.GONE
Outcome = Fate | RefusedCommit | Invalid
SdkCall = Callable[..., Awaitable[dict[str, Any]]]
_WRITES = frozenset({"delete_item", "put_item", "update_item"})
_OTHERS = frozenset({"batch_get_item", "get_item", "query", "transact_write_items"})
_REFUSED = {"CapacityUnits": 1.0}
"""The cost of a write of a small item whose condition does not hold."""
_AHEAD: ContextVar[list[Reserved] | None] = ContextVar("_AHEAD", default=None)
"""What a task has reserved for its next write; that write takes it out."""


class Calls:
    """The calls of one process; with a `permit`, nothing is written once the phase is over.

    `schemas` are the tables that it writes to.
    """

    def __init__(
        self,
        dynamodb: Any,
        rate: Rate,
        schemas: Iterable[TableSchema],
        permit: Permit | None = None,
    ) -> None:
        self._dynamodb = dynamodb
        self._schemas = {schema.name: schema for schema in schemas}
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

    async def query_page(self, **request: Any) -> dict[str, Any]:
        """Read a page of a query."""
        return await self._read(self._dynamodb.query, request)

    async def query(self, **request: Any) -> list[dict[str, Wire]]:
        """Read all items of a query, strongly consistent."""
        pages = pages_of(self.query_page, **request | {"ConsistentRead": True})
        return [item async for page in pages for item in page["Items"]]

    async def write(self, action: Action) -> Outcome:
        """Send one action that has a condition, in a call of its own."""
        (body,) = self._render(action).values()
        call = getattr(self._dynamodb, action.verb.alone)
        return await self._send(partial(call, **body), [action], "write")

    async def transact(self, actions: Sequence[Action]) -> Outcome:
        """Send a transaction, every action of which has a condition."""
        call = partial(
            self._dynamodb.transact_write_items,
            TransactItems=[self._render(action) for action in actions],
            ClientRequestToken=uuid.uuid4().hex,
        )
        return await self._send(call, actions)

    @asynccontextmanager
    async def reserved(self) -> AsyncIterator[None]:
        """Wait for the units of a write before its item is read.

        With a small limit a write waits for seconds. If its item were read before that wait, an
        item that is written often would have changed, and a write that is refused costs units, too.
        """
        ahead = [await self.rate.ready("write")]
        token = _AHEAD.set(ahead)
        try:
            yield
        finally:
            _AHEAD.reset(token)
            for left in ahead:
                self.rate.settle("write", left)

    async def renew(self) -> None:
        """Let the next write see whether its phase is over."""
        if self._permit is not None:
            await self._permit.view.renew()

    def _render(self, action: Action) -> dict[str, dict[str, Any]]:
        """Return the request of an action; a refusal of it contains the present item."""
        request = render(action, self._schemas[action.ref.table])
        for body in request.values():
            body["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        return request

    async def _read(self, call: SdkCall, request: dict[str, Any]) -> dict[str, Any]:
        reply = await self._patiently("read", partial(call, **request))
        if isinstance(reply, RefusedCommit | Invalid):
            raise ConfigurationError(f"the table refuses a read: {reply}")
        self.rate.charge(reply.get("ConsumedCapacity"))
        return reply

    async def _send(
        self, call: SdkCall, actions: Sequence[Action], charged: Kind = "read"
    ) -> Outcome:
        """Send a write; if its phase ended while it was sent, look at its items again."""
        reply, tries = None, 0

        async def counted(**capacity: Any) -> dict[str, Any]:
            nonlocal tries
            tries += 1
            return await call(**capacity)

        try:
            reply = await self._patiently("write", counted)
        finally:
            if self._permit is not None and tries and not _left_alone(reply, actions):
                refs = [action.ref for action in actions]
                await self._permit.settle([(r.table, r.key(self._schemas[r.table])) for r in refs])
        if isinstance(reply, RefusedCommit | Invalid):
            return reply
        self.rate.charge(reply.get("ConsumedCapacity"), charged)
        return DONE

    async def _patiently(
        self, kind: Kind, call: SdkCall
    ) -> dict[str, Any] | RefusedCommit | Invalid:
        async def paced() -> dict[str, Any]:
            ahead, refused = _AHEAD.get() if kind == "write" else None, False
            reserved = ahead.pop() if ahead else await self.rate.ready(kind)
            try:
                if kind == "write" and self._permit is not None:
                    await self._permit.require()
                return await call(ReturnConsumedCapacity="INDEXES")
            except AwsError as error:
                refused = isinstance(judge(error), RefusedCommit | Invalid)
                raise
            finally:
                self.rate.settle(kind, reserved, cost=refused)

        return await until_known(paced, self._meaning)

    async def _meaning(self, error: Exception) -> RefusedCommit | Invalid | None:
        verdict = judge(error)
        if isinstance(verdict, Again):
            if verdict.throttled:
                self.rate.ease("throttled")
            return None
        if verdict is not None:
            return verdict
        raise refused("a call", error) from error


def _left_alone(reply: Any, actions: Sequence[Action]) -> bool:
    """Return whether a single write was refused, and none of its tries wrote the item.

    Then other code wrote the item, and after the end of the phase no process has to migrate it.
    """
    if not isinstance(reply, RefusedCommit) or len(actions) > 1:
        return False
    origin = (reply.items.get(0) or {}).get(ORIGIN)
    return origin is None or origin != actions[0].sets.get(ORIGIN)


class Charged:
    """A client of DynamoDB whose calls are charged to a rate, but never wait.

    It is for a migration's writes of its own state and positions: a lease whose renewal waited
    would be lost.
    """

    def __init__(self, dynamodb: Any, rate: Rate) -> None:
        self._dynamodb = dynamodb
        self._rate = rate

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._dynamodb, name)
        if name in _WRITES:
            return partial(self._call, call, "write")
        return partial(self._call, call, "read") if name in _OTHERS else call

    async def _call(self, call: Any, kind: Kind, **request: Any) -> Any:
        try:
            reply = await call(**{"ReturnConsumedCapacity": "INDEXES", **request})
        except AwsError as error:
            if trouble_of(error) is ErrorKind.CONDITION:
                self._rate.charge(_REFUSED, "write", usual=False)
            raise
        self._rate.charge(reply.get("ConsumedCapacity"), kind, usual=False)
        return reply
