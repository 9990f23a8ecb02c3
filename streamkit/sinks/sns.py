"""SNS: deliveries published to a topic, standard or FIFO."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from streamkit.aws import open_client
from streamkit.errors import DeclarationError
from streamkit.sinks.calls import READ_SECONDS, BatchSender, Capacity, Entry, failed_codes
from streamkit.sinks.notes import attributes_of, size_of, text_of
from streamkit.sinks.sink import Delivery, Limits

_CAPACITY = Capacity(entries=10, size=262_144, each=262_144)
"""API reference of `PublishBatch`: ten entries, 256 KiB each and together, attributes included."""


@dataclass(frozen=True)
class Sns:
    """Publish to a topic; the SDK's own region, keys and endpoint are used.

        shipped = app.sink(Sns("shipped", "arn:aws:sns:eu-central-1:1234:shipped"))

    The body arrives as JSON, or as the text it is; a deletion as `null`. `key`, `id`, `group` and
    `sequence` come as attributes, and up to six more from `Send`, by which a subscription may
    filter.

    Order: a FIFO topic (its name ends in `.fifo`) keeps the order of each item: the group is the
    item, and a later delivery waits until SNS has the earlier one. A standard topic keeps none; a
    receiver that keeps the latest state ignores a smaller `sequence` of an `id`.

    Duplicates: a FIFO topic drops what was published again within five minutes, told by `key`;
    later ones, after an outage, and all those of a standard topic arrive twice. A receiver
    remembers the keys it has seen, or the highest `sequence` of each `id`.

    Attributes:
        name: unique in the app.
        topic_arn: of the topic.
        calls: how many calls may be under way at once.

    Raises:
        DeclarationError: the ARN is not one of a topic.
    """

    name: str
    topic_arn: str
    calls: int = 4

    def __post_init__(self) -> None:
        if self.topic_arn.split(":")[0:3:2] != ["arn", "sns"]:
            raise DeclarationError(f"sink {self.name!r}: {self.topic_arn!r} is not a topic's ARN")

    @property
    def limits(self) -> Limits:
        """What one call takes."""
        return Limits(_CAPACITY.entries, _CAPACITY.size, self.calls)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["SnsSender"]:
        """Open a client; the topic is first looked for when something is sent."""
        async with open_client("sns", read_seconds=READ_SECONDS) as client:
            yield SnsSender(client, self.topic_arn)


class SnsSender(BatchSender):
    """An open `Sns`."""

    service: ClassVar[str] = "SNS"
    capacity: ClassVar[Capacity] = _CAPACITY

    def __init__(self, client: Any, topic_arn: str) -> None:
        """Publish to a topic through a client of the SDK."""
        super().__init__(client, ordered=topic_arn.endswith(".fifo"))
        self.topic_arn = topic_arn

    def entry(self, delivery: Delivery) -> Entry:
        """Return an entry of `PublishBatch`, without its id."""
        text, attributes = text_of(delivery), attributes_of(delivery)
        wire: dict[str, Any] = {"Message": text, "MessageAttributes": attributes}
        if self.ordered:
            wire["MessageGroupId"] = delivery.group
            wire["MessageDeduplicationId"] = delivery.key
        return Entry(wire, size_of(text, attributes))

    async def call(self, wires: Sequence[Any]) -> Sequence[str | None]:
        """Make one call of `PublishBatch`."""
        entries = [wire | {"Id": str(place)} for place, wire in enumerate(wires)]
        reply = await self.client.publish_batch(
            TopicArn=self.topic_arn, PublishBatchRequestEntries=entries
        )
        return failed_codes(reply, len(entries))
