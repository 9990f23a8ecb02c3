"""Firehose: deliveries become lines that Firehose collects and stores elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from streamkit.sinks.calls import BatchedSink, CallEntry, Capacity
from streamkit.sinks.envelope import to_line
from streamkit.sinks.sink import Delivery


@dataclass(frozen=True)
class Firehose(BatchedSink):
    """Put records into a Firehose stream, with the SDK's own region, keys and endpoint.

        clicks = app.sink(Firehose("clicks", "clicks-to-lake"))

    A record is one line, ended by a line feed, with a JSON object: `key`, `id`, `group`,
    `sequence`, `created_at` and `body` (null for a deletion), and `attributes` if there are any.

    Order: a reader must not rely on any; it sorts by `sequence` within a `group`.

    Duplicates: after a time-out or a crash a record is put again, and Firehose itself may store one
    twice. A reader must keep only one row for each `key`.

    Attributes:
        name: unique in the app.
        stream: the Firehose stream's name.
        calls: how many calls may be under way at once.
    """

    stream: str

    service: ClassVar[str] = "Firehose"
    api: ClassVar[str] = "firehose"
    capacity: ClassVar[Capacity] = Capacity(entries=500, size=4_000_000, each=1_000_000)
    """The API reference of `PutRecordBatch` allows 500 records of 1,000 KB, 4 MB together. KB and
    MB are taken as thousands and millions, the smaller of their two meanings."""

    def entry(self, delivery: Delivery) -> CallEntry:
        """Return a record of `PutRecordBatch`."""
        data = to_line(delivery) + b"\n"
        return CallEntry({"Data": data}, len(data))

    async def call(self, client: Any, wires: Sequence[Any]) -> Sequence[str | None]:
        """Make one call of `PutRecordBatch`."""
        reply = await client.put_record_batch(DeliveryStreamName=self.stream, Records=list(wires))
        return [record.get("ErrorCode") for record in reply["RequestResponses"]]
