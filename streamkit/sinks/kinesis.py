"""Kinesis Data Streams: deliveries become records of a Kinesis stream."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from streamkit.sinks.calls import BatchedSink, CallEntry, Capacity
from streamkit.sinks.envelope import to_line
from streamkit.sinks.sink import Delivery


@dataclass(frozen=True)
class Kinesis(BatchedSink):
    """Put records into a Kinesis stream, with the SDK's own region, keys and endpoint.

        live = app.sink(Kinesis("live", "orders-live"))

    A record's data is one JSON object with `key`, `id`, `group`, `sequence`, `created_at` and
    `body` (null for a deletion), and `attributes` if there are any. The partition key is the group.

    Order: the order of each item is kept, because all its records go to one shard. `PutRecords`
    promises no order within a call, so a call never holds two records of an item; a busy item
    therefore takes one call for each change.

    Duplicates: after a time-out or a crash a record is put again, with the same `key`; after a
    crash an older record may follow a newer one. A receiver must remember the keys it has seen, or
    the highest `sequence` of each `id`.

    Attributes:
        name: unique in the app.
        stream: the stream's name.
        calls: how many calls may be under way at once.
    """

    stream: str

    service: ClassVar[str] = "Kinesis"
    api: ClassVar[str] = "kinesis"
    capacity: ClassVar[Capacity] = Capacity(entries=500, size=5_242_880, each=1_048_576)
    """The API reference of `PutRecords` allows 500 records; sizes include the keys. Every stream
    takes 1 MiB each unless it was given more, and every Region takes 5 MiB together."""

    @property
    def ordered(self) -> bool:
        """Return True: a shard keeps the order of calls that are made one after the other."""
        return True

    def entry(self, delivery: Delivery) -> CallEntry:
        """Return a record of `PutRecords`."""
        data = to_line(delivery)
        wire = {"Data": data, "PartitionKey": delivery.group}
        return CallEntry(wire, len(data) + len(delivery.group.encode()))

    async def call(self, client: Any, wires: Sequence[Any]) -> Sequence[str | None]:
        """Make one call of `PutRecords`."""
        reply = await client.put_records(StreamName=self.stream, Records=list(wires))
        return [record.get("ErrorCode") for record in reply["Records"]]
