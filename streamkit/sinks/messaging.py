"""Messaging: the sinks of SQS and SNS share this base; both send a text with attributes."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from streamkit.sinks.calls import BatchedSink, CallEntry, failed_codes
from streamkit.sinks.notes import attributes_of, size_of, text_of
from streamkit.sinks.sink import Delivery


@dataclass(frozen=True)
class MessagingSink(BatchedSink):
    """A sink of a messaging service, standard or FIFO."""

    body: ClassVar[str]
    """The service's name for the text of an entry."""

    @property
    @abstractmethod
    def destination(self) -> str:
        """Return the queue or topic; one that ends in `.fifo` keeps the order of each group."""

    @property
    def ordered(self) -> bool:
        """Return True if the destination is FIFO."""
        return self.destination.endswith(".fifo")

    def entry(self, delivery: Delivery) -> CallEntry:
        """Return an entry, without its id."""
        text, attributes = text_of(delivery), attributes_of(delivery)
        wire: dict[str, Any] = {self.body: text, "MessageAttributes": attributes}
        if self.ordered:
            wire["MessageGroupId"] = delivery.group
            wire["MessageDeduplicationId"] = delivery.key
        return CallEntry(wire, size_of(text, attributes))

    async def call(self, client: Any, wires: Sequence[Any]) -> Sequence[str | None]:
        """Make one call; the id of each entry is its place."""
        entries = [wire | {"Id": str(place)} for place, wire in enumerate(wires)]
        return failed_codes(await self.publish(client, entries), len(entries))

    @abstractmethod
    async def publish(self, client: Any, entries: Sequence[Any]) -> Any:
        """Make the service's call and return its reply."""
