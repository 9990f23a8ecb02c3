"""SQS: deliveries as entries of a queue, standard or FIFO."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from streamkit.aws import open_client
from streamkit.errors import DeclarationError
from streamkit.sinks.calls import READ_SECONDS, BatchSender, Capacity, Entry, failed_codes
from streamkit.sinks.notes import attributes_of, size_of, text_of
from streamkit.sinks.sink import Delivery, Limits

_CAPACITY = Capacity(entries=10, size=1_048_576, each=1_048_576)
"""API reference of `SendMessageBatch`: ten entries, 1 MiB each and together, attributes included.
Where a queue or Region takes less, SQS says so, and the entries are sent one by one."""


@dataclass(frozen=True)
class Sqs:
    """Send to a queue; the SDK's own region, keys and endpoint are used.

        orders = app.sink(Sqs("orders", "https://sqs.eu-central-1.amazonaws.com/1234/orders.fifo"))

    The body arrives as JSON, or as the text it is; a deletion as `null`. `key`, `id`, `group` and
    `sequence` come as attributes, and up to six more from `Send`.

    Order: a FIFO queue (its name ends in `.fifo`) keeps the order of each item: the group is the
    item, and a later delivery waits until SQS has the earlier one. A standard queue keeps none; a
    receiver that keeps the latest state ignores a smaller `sequence` of an `id`.

    Duplicates: a FIFO queue drops what was sent again within five minutes, told by `key`; later
    ones, after an outage, and all those of a standard queue arrive twice. A receiver remembers the
    keys it has seen, or the highest `sequence` of each `id`.

    Attributes:
        name: unique in the app.
        queue_url: as `GetQueueUrl` returns it.
        calls: how many calls may be under way at once.

    Raises:
        DeclarationError: the URL is none.
    """

    name: str
    queue_url: str
    calls: int = 4

    def __post_init__(self) -> None:
        if not self.queue_url.startswith(("https://", "http://")):
            raise DeclarationError(f"sink {self.name!r}: {self.queue_url!r} is not a queue's URL")

    @property
    def limits(self) -> Limits:
        """What one call takes."""
        return Limits(_CAPACITY.entries, _CAPACITY.size, self.calls)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["SqsSender"]:
        """Open a client; the queue is first looked for when something is sent."""
        async with open_client("sqs", read_seconds=READ_SECONDS) as client:
            yield SqsSender(client, self.queue_url)


class SqsSender(BatchSender):
    """An open `Sqs`."""

    service: ClassVar[str] = "SQS"
    capacity: ClassVar[Capacity] = _CAPACITY

    def __init__(self, client: Any, queue_url: str) -> None:
        """Send to a queue through a client of the SDK."""
        super().__init__(client, ordered=queue_url.endswith(".fifo"))
        self.queue_url = queue_url

    def entry(self, delivery: Delivery) -> Entry:
        """Return an entry of `SendMessageBatch`, without its id."""
        text, attributes = text_of(delivery), attributes_of(delivery)
        wire: dict[str, Any] = {"MessageBody": text, "MessageAttributes": attributes}
        if self.ordered:
            wire["MessageGroupId"] = delivery.group
            wire["MessageDeduplicationId"] = delivery.key
        return Entry(wire, size_of(text, attributes))

    async def call(self, wires: Sequence[Any]) -> Sequence[str | None]:
        """Make one call of `SendMessageBatch`."""
        entries = [wire | {"Id": str(place)} for place, wire in enumerate(wires)]
        reply = await self.client.send_message_batch(QueueUrl=self.queue_url, Entries=entries)
        return failed_codes(reply, len(entries))
