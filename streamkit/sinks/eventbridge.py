"""EventBridge: deliveries become events of a bus, and rules pass them on."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from streamkit.aws import AwsError, ErrorKind, code_of, trouble_of
from streamkit.errors import ConfigurationError, DeclarationError
from streamkit.observe.logger import get_logger
from streamkit.sinks.calls import BatchedSink, BatchSender, CallEntry, Capacity
from streamkit.sinks.envelope import to_envelope, to_json
from streamkit.sinks.sink import Delivery

log = get_logger("streamkit.sinks.eventbridge")

_TIME_BYTES = 14
"""EventBridge counts these bytes for an event's time ("Calculating PutEvents event entry size")."""

_INTEGER_MAX = 2**63 - 1
"""EventBridge takes 64-bit integers (API reference of `PutEvents`); larger ones go as text."""

_DETAIL_TYPE_MAX = 128


@dataclass(frozen=True)
class EventBridge(BatchedSink):
    """Put events on a bus, with the SDK's own region, keys and endpoint.

        bus = EventBridge("bus", "shop", source="shop.orders", detail_type="OrderChanged")

    `detail` is a JSON object with `key`, `id`, `group`, `sequence`, `created_at` and `body` (null
    for a deletion), and `attributes` if there are any; rules match on `detail.body.…`. Whole
    numbers beyond 64 bits arrive as text. The event's time is the time of the change.

    `PutEvents` reports success for a bus that does not exist, and drops the events. So the sink
    checks when it opens that the bus exists, which needs `events:DescribeEventBus`. Without that
    permission it logs a warning and checks nothing. A bus deleted later is not noticed.

    Order: none; a receiver that keeps the latest state ignores a smaller `sequence` of an `id`.

    Duplicates: after a time-out or a crash an event is put again, and EventBridge itself may pass
    one on twice. A receiver must remember the keys it has seen.

    Attributes:
        name: unique in the app.
        bus: the bus's name or ARN.
        source: the source of all events; it must not begin with `aws.`.
        detail_type: the detail type of all events, up to 128 characters.
        calls: how many calls may be under way at once.

    Raises:
        DeclarationError: EventBridge never takes this source or this type.
    """

    bus: str
    source: str
    detail_type: str

    service: ClassVar[str] = "EventBridge"
    api: ClassVar[str] = "events"
    capacity: ClassVar[Capacity] = Capacity(entries=10, size=262_143, each=262_143)
    """The API reference of `PutEvents` allows ten entries, together less than 256 KB."""

    def __post_init__(self) -> None:
        if not self.source or self.source.lower().startswith("aws."):
            raise DeclarationError(f"sink {self.name!r}: no event may have source {self.source!r}")
        if not 0 < len(self.detail_type) <= _DETAIL_TYPE_MAX:
            raise DeclarationError(f"sink {self.name!r}: a detail type has 1 to 128 characters")

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[BatchSender]:
        """Open a client and look for the bus.

        Raises:
            ConfigurationError: there is no such bus.
        """
        async with super().opened() as sender:
            try:
                await sender.client.describe_event_bus(Name=self.bus)
            except AwsError as error:
                if trouble_of(error) is ErrorKind.MISSING:
                    raise ConfigurationError(
                        f"sink {self.name!r}: there is no event bus {self.bus!r}"
                    ) from error
                log.warning("sink.unchecked", sink=self.name, code=code_of(error))
            yield sender

    def entry(self, delivery: Delivery) -> CallEntry:
        """Return an entry of `PutEvents`."""
        detail = to_json(_in_64_bits(to_envelope(delivery)))
        wire = {
            "EventBusName": self.bus,
            "Source": self.source,
            "DetailType": self.detail_type,
            "Detail": detail,
            "Time": delivery.created_at,
        }
        texts = (self.source, self.detail_type, detail)
        return CallEntry(wire, _TIME_BYTES + sum(len(text.encode()) for text in texts))

    async def call(self, client: Any, wires: Sequence[Any]) -> Sequence[str | None]:
        """Make one call of `PutEvents`."""
        reply = await client.put_events(Entries=list(wires))
        return [entry.get("ErrorCode") for entry in reply["Entries"]]


def _in_64_bits(plain: Any) -> Any:
    """Return the same value, with integers that need more than 64 bits as text."""
    if isinstance(plain, dict):
        return {name: _in_64_bits(value) for name, value in plain.items()}
    if isinstance(plain, list):
        return [_in_64_bits(value) for value in plain]
    if isinstance(plain, int) and not -_INTEGER_MAX - 1 <= plain <= _INTEGER_MAX:
        return str(plain)
    return plain
