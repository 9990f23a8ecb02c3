"""The engine: DynamoDB and DynamoDB Streams in memory, called with requests in wire form.

`Engine.call` carries out one operation, completely or not at all. It does not raise refusals: it
returns them as a status and a body. Clock and randomness are given by the caller, so a run can be
repeated. Everything happens within a call; there are no threads and no timers.
"""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from streamkit.local import (
    account,
    batches,
    definitions,
    items,
    queries,
    redefinitions,
    scans,
    streams_api,
    tags,
    transactions,
    ttl,
)
from streamkit.local.all_streams import Streams
from streamkit.local.attributes import nesting_error
from streamkit.local.capacity import Meter
from streamkit.local.engine_clock import EngineClock
from streamkit.local.errors import ApiError, serialization
from streamkit.local.lacking import complaint
from streamkit.local.stream_settings import StreamSettings
from streamkit.local.streams_api import RecordsRead
from streamkit.local.tables import EngineTable, IndexLag
from streamkit.local.tokens import RequestTokens

Payload: TypeAlias = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

_Reply = TypeVar("_Reply", Payload, RecordsRead)


class CallRecord(NamedTuple):
    """One call, as observers see it.

    Attributes:
        service: `dynamodb` or `dynamodbstreams`.
        operation: its name, `PutItem` for example.
        payload: the request.
        status: the HTTP status of the reply.
        reply: the reply, or a page of records that becomes one once an observer asks for `body`.
        at: the time of the call, by the engine's clock.
        units: the capacity consumed: `{"read": ..., "write": ...}`.
    """

    service: str
    operation: str
    payload: Payload
    status: int
    reply: Payload | RecordsRead
    at: float
    units: dict[str, float]

    @property
    def body(self) -> Payload:
        """Return the reply."""
        reply = self.reply
        return reply.body if isinstance(reply, RecordsRead) else reply


@dataclass(slots=True)
class EngineCommons:
    """What the engines of all Regions and accounts share; each puts itself into `engines`."""

    lag: IndexLag
    observers: "list[Callable[[CallRecord], None]]" = field(default_factory=list)
    engines: "dict[tuple[str, str], Engine]" = field(default_factory=dict)


class Engine:
    """An account's tables and streams in one Region, with access to other Regions and accounts.

    Args:
        clock: gives the time in seconds since the epoch.
        rng: the source of all randomness.
        account: the account in ARNs.
        region: the Region in ARNs and stream records.
        shards: how many shards a new stream has.
        settings: how streams behave.
        commons: what this engine shares with an engine of another Region or account.

    Attributes:
        tables: the tables by name.
        streams: all streams, including those of deleted tables while they can be read.
        observers: functions that are called after each call with its `CallRecord`.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
        account: str = "000000000000",
        region: str = "us-east-1",
        shards: int = 1,
        settings: StreamSettings | None = None,
        commons: EngineCommons | None = None,
    ) -> None:
        self._clock = EngineClock.of(clock)
        self.clock: Callable[[], float] = self._clock
        self.rng = rng or random.Random()
        self.account = account
        self.region = region
        self.streams = Streams(
            clock=self.clock,
            rng=self.rng,
            account=account,
            region=region,
            shards=shards,
            settings=settings,
        )
        self.tables: dict[str, EngineTable] = {}
        self.meter = Meter()
        self.tokens = RequestTokens(self.clock)
        self._commons = commons or EngineCommons(IndexLag(self.clock))
        self.lag, self.observers = self._commons.lag, self._commons.observers
        self._commons.engines[account, region] = self

    def everywhere(self) -> "list[Engine]":
        """Return this engine and the engines of all Regions and accounts called so far."""
        return list(self._commons.engines.values())

    def advance(self, seconds: float) -> float:
        """Put the clock of all Regions and accounts ahead; return the time, in epoch seconds."""
        self._clock.ahead += seconds
        return self._clock()

    def at(self, region: str | None = None, account: str | None = None) -> "Engine":
        """Return the engine of a Region of an account; None means this one's.

        Tables with the same name in two Regions have nothing in common. The engines share the
        clock, the source of randomness, the stream settings, the index lag and the observers.
        """
        place = (account or self.account, region or self.region)
        found = self._commons.engines.get(place)
        if found is None:
            found = Engine(
                clock=self.clock,
                rng=self.rng,
                account=place[0],
                region=place[1],
                shards=self.streams.default_shards,
                settings=self.streams.settings,
                commons=self._commons,
            )
        return found

    @property
    def index_lag(self) -> float:
        """Return the seconds by which global secondary indexes lag behind; 0 unless set."""
        return self.lag.seconds

    @index_lag.setter
    def index_lag(self, seconds: float) -> None:
        self.lag.seconds = seconds

    @property
    def index_creation(self) -> float:
        """Return how many seconds a new index is CREATING; 0 unless set."""
        return self.lag.creation

    @index_creation.setter
    def index_creation(self, seconds: float) -> None:
        self.lag.creation = seconds

    def call(self, service: str, operation: str, payload: Payload) -> tuple[int, Payload]:
        """Carry out one operation.

        Args:
            service: `dynamodb` or `dynamodbstreams`.
            operation: its name, `PutItem` for example.
            payload: the request; it belongs to the engine from now on.

        Returns:
            The HTTP status and the body. Do not change the body: it shares stored items.
        """
        self.meter = Meter()
        try:
            body = _operation(OPERATIONS, service, operation)(self, payload)
        except ApiError as error:
            return self._answer(service, operation, payload, error.status, error.body())
        return self._answer(service, operation, payload, 200, body)

    def call_bytes(self, service: str, operation: str, payload: bytes) -> tuple[int, bytes]:
        """Carry out one operation whose request and reply are JSON."""
        try:
            request = _decode(payload) if payload else {}
            if type(request) is not dict:
                raise serialization("Unexpected value type in payload")
        except (msgspec.DecodeError, UnicodeDecodeError):
            return 400, _encode(serialization("Unable to parse the request").body())
        except RecursionError:
            return 400, _encode(nesting_error().body())
        except ApiError as error:
            return error.status, _encode(error.body())
        read = ENCODED.get((service, operation))
        if read is None:
            status, body = self.call(service, operation, request)
            return status, _encode(body)
        self.meter = Meter()
        try:
            page = read(self, request)
        except ApiError as error:
            status, body = self._answer(service, operation, request, error.status, error.body())
            return status, _encode(body)
        self._answer(service, operation, request, 200, page)
        return 200, page.encoded()

    def expire(self, table_name: str) -> int:
        """Delete the items of a table whose time to live has passed; return how many."""
        return ttl.expire(self, table_name)

    def _answer(
        self, service: str, operation: str, payload: Payload, status: int, reply: _Reply
    ) -> tuple[int, _Reply]:
        if self.observers:
            units = self.meter.units()
            record = CallRecord(service, operation, payload, status, reply, self.clock(), units)
            for observer in self.observers:
                observer(record)
        return status, reply


Operation: TypeAlias = Callable[[Engine, Payload], Payload]

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("dynamodb", name): operation
    for module in (
        account,
        definitions,
        redefinitions,
        tags,
        ttl,
        items,
        queries,
        scans,
        batches,
        transactions,
    )
    for name, operation in module.OPERATIONS.items()
}
OPERATIONS |= {
    ("dynamodbstreams", name): operation for name, operation in streams_api.OPERATIONS.items()
}
ENCODED: dict[tuple[str, str], Callable[[Engine, Payload], RecordsRead]] = {
    ("dynamodbstreams", name): operation for name, operation in streams_api.ENCODED.items()
}


def _operation(
    operations: Mapping[tuple[str, str], Operation], service: str, operation: str
) -> Operation:
    found = operations.get((service, operation))
    if found is None:
        raise ApiError("UnknownOperationException", complaint(operation))
    return found
