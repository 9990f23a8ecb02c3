"""SQS: deliveries become entries of a queue, standard or FIFO."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from streamkit.errors import DeclarationError
from streamkit.sinks.calls import Capacity
from streamkit.sinks.messaging import MessagingSink


@dataclass(frozen=True)
class Sqs(MessagingSink):
    """Send to a queue, with the SDK's own region, keys and endpoint.

        orders = app.sink(Sqs("orders", "https://sqs.eu-central-1.amazonaws.com/1234/orders.fifo"))

    The body arrives as JSON, a text body as it is, a deletion as `null`. `key`, `id`, `group` and
    `sequence` come as attributes, and up to six more from `Send`.

    Order: a FIFO queue (its name ends in `.fifo`) keeps the order of each item: the group is the
    item, and a later delivery waits until SQS has the earlier one. A standard queue keeps none; a
    receiver that keeps the latest state ignores a smaller `sequence` of an `id`.

    Duplicates: a FIFO queue drops a `key` that was sent within the last five minutes. Later ones,
    after an outage, and all those of a standard queue arrive twice. A receiver must remember the
    keys it has seen, or the highest `sequence` of each `id`.

    Attributes:
        name: unique in the app.
        queue_url: as `GetQueueUrl` returns it.
        calls: how many calls may be under way at once.

    Raises:
        DeclarationError: the URL is not the URL of a queue.
    """

    queue_url: str

    service: ClassVar[str] = "SQS"
    api: ClassVar[str] = "sqs"
    capacity: ClassVar[Capacity] = Capacity(entries=10, size=1_048_576, each=1_048_576)
    """The API reference of `SendMessageBatch` allows ten entries, 1 MiB each and together,
    attributes included. Where a queue or Region takes less, SQS refuses, and the entries are sent
    one by one."""
    body: ClassVar[str] = "MessageBody"

    def __post_init__(self) -> None:
        if not self.queue_url.startswith(("https://", "http://")):
            raise DeclarationError(f"sink {self.name!r}: {self.queue_url!r} is not a queue's URL")

    @property
    def destination(self) -> str:
        """Return the queue's URL."""
        return self.queue_url

    async def publish(self, client: Any, entries: Sequence[Any]) -> Any:
        """Make one call of `SendMessageBatch`."""
        return await client.send_message_batch(QueueUrl=self.queue_url, Entries=entries)
