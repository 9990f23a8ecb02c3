"""SNS: deliveries are published to a topic, standard or FIFO."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from streamkit.errors import DeclarationError
from streamkit.sinks.calls import Capacity
from streamkit.sinks.messaging import MessagingSink


@dataclass(frozen=True)
class Sns(MessagingSink):
    """Publish to a topic, with the SDK's own region, keys and endpoint.

        shipped = app.sink(Sns("shipped", "arn:aws:sns:eu-central-1:1234:shipped"))

    The body arrives as JSON, a text body as it is, a deletion as `null`. `key`, `id`, `group` and
    `sequence` come as attributes, and up to six more from `Send`, by which a subscription may
    filter.

    Order: a FIFO topic (its name ends in `.fifo`) keeps the order of each item: the group is the
    item, and a later delivery waits until SNS has the earlier one. A standard topic keeps none; a
    receiver that keeps the latest state ignores a smaller `sequence` of an `id`.

    Duplicates: a FIFO topic drops a `key` that was published within the last five minutes. Later
    ones, after an outage, and all those of a standard topic arrive twice. A receiver must remember
    the keys it has seen, or the highest `sequence` of each `id`.

    Attributes:
        name: unique in the app.
        topic_arn: the topic's ARN.
        calls: how many calls may be under way at once.

    Raises:
        DeclarationError: the ARN is not one of a topic.
    """

    topic_arn: str

    service: ClassVar[str] = "SNS"
    api: ClassVar[str] = "sns"
    capacity: ClassVar[Capacity] = Capacity(entries=10, size=262_144, each=262_144)
    """The API reference of `PublishBatch` allows ten entries, 256 KiB each and together, attributes
    included."""
    body: ClassVar[str] = "Message"

    def __post_init__(self) -> None:
        if self.topic_arn.split(":")[0:3:2] != ["arn", "sns"]:
            raise DeclarationError(f"sink {self.name!r}: {self.topic_arn!r} is not a topic's ARN")

    @property
    def destination(self) -> str:
        """Return the topic's ARN."""
        return self.topic_arn

    async def publish(self, client: Any, entries: Sequence[Any]) -> Any:
        """Make one call of `PublishBatch`."""
        return await client.publish_batch(
            TopicArn=self.topic_arn, PublishBatchRequestEntries=entries
        )
