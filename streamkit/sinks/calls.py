"""Calls: deliveries are cut into the calls that an AWS service takes, and its answers are read.

In: deliveries, in order. Out: for each delivery None, or the reason why it was not delivered. A
service answers for every entry of a call: some entries may fail while others arrive.

Order. Where a service keeps one, a call never holds two deliveries of a group. Once a delivery of
a group has failed, the later ones are not sent, so nothing overtakes, whichever entry fails.

Failure. A delivery is parked (`PoisonChange`) only when nothing but the delivery can be at fault:
it is larger than the service takes, or the service says that the content of this entry is wrong.
Everything else is tried again (`RetryableError`): throttling, outages, and also missing queues,
wrong policies and keys, which an operator can correct while the deliveries wait.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from streamkit.aws import AwsError, code_of, open_client
from streamkit.errors import PoisonChange, RetryableError, StreamkitError
from streamkit.sinks.sink import Delivery, Limits

READ_SECONDS = 10.0
"""The time for one reply; a service that stores megabytes in a batch is slower than DynamoDB."""

NOT_ANSWERED = "NotAnswered"
"""This code stands for an entry that is missing in the reply."""

_CONTENT_ONLY = frozenset({"BatchRequestTooLong", "InvalidMessageContents", "MessageTooLong"})
"""These codes blame the content of an entry, and nothing else."""

_CONTENT = _CONTENT_ONLY | {
    "InvalidParameter",
    "InvalidParameterValue",
    "ParameterValueInvalid",
    "InvalidAttributeValue",
    "MalformedDetail",
}
"""These codes, reported for one entry, blame its content. Reported for a whole call, they may mean
one of its entries, or the name of the queue. The entries are then sent one by one, so that a bad
entry does not hold back the rest."""


class Capacity(msgspec.Struct, frozen=True):
    """The limits of one call of a service: entries, bytes of all of them, bytes of each."""

    entries: int
    size: int
    each: int


class CallEntry(msgspec.Struct, frozen=True):
    """A delivery in the service's form, and its size in bytes as the service counts them."""

    wire: Any
    size: int


def turns(deliveries: Sequence[Delivery]) -> list[list[int]]:
    """Return the places of all first deliveries of a group, then of all second ones, and so on."""
    seen: defaultdict[str, int] = defaultdict(int)
    found: list[list[int]] = []
    for place, delivery in enumerate(deliveries):
        turn = seen[delivery.group]
        seen[delivery.group] += 1
        if turn == len(found):
            found.append([])
        found[turn].append(place)
    return found


def cut(entries: Mapping[int, CallEntry], capacity: Capacity) -> Iterator[dict[int, CallEntry]]:
    """Cut entries, by place, into as many calls as they need, in order."""
    call: dict[int, CallEntry] = {}
    size = 0
    for place, entry in entries.items():
        if call and (len(call) == capacity.entries or size + entry.size > capacity.size):
            yield call
            call, size = {}, 0
        call[place] = entry
        size += entry.size
    if call:
        yield call


@dataclass(frozen=True)
class BatchedSink(ABC):
    """A sink of an AWS service that takes many entries in a call and answers for each.

    A subclass declares what one call takes and what an entry looks like, and makes the call. This
    class cuts deliveries into calls and reads the answers, in the same way for all services.
    """

    name: str
    calls: int = field(default=4, kw_only=True)

    service: ClassVar[str]
    """The service's name in errors."""
    api: ClassVar[str]
    """The service's name in the SDK."""
    capacity: ClassVar[Capacity]

    @property
    def limits(self) -> Limits:
        """Return what one call takes."""
        return Limits(self.capacity.entries, self.capacity.size, self.calls)

    @property
    def ordered(self) -> bool:
        """Return True if the service keeps the order of each group; the calls then keep it too."""
        return False

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["BatchSender"]:
        """Open a client; a missing destination is noticed at the first send, not here."""
        async with open_client(self.api, read_seconds=READ_SECONDS) as client:
            yield BatchSender(self, client)

    @abstractmethod
    def entry(self, delivery: Delivery) -> CallEntry:
        """Return a delivery in the form that the service takes.

        Raises:
            PoisonChange: the service would never take it.
            TypeError, ValueError: its body has no form as text.
        """

    @abstractmethod
    async def call(self, client: Any, wires: Sequence[Any]) -> Sequence[str | None]:
        """Make one call through a client of the SDK; return for each entry None, or its code."""


@dataclass(frozen=True)
class BatchSender:
    """An open `BatchedSink`."""

    sink: BatchedSink
    client: Any

    async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Exception | None]:
        """Deliver; return for each delivery None, or the error that stopped it."""
        failed: dict[int, Exception] = {}
        for turn in turns(deliveries) if self.sink.ordered else [list(range(len(deliveries)))]:
            behind = {deliveries[place].group for place in failed} if self.sink.ordered else set()
            entries: dict[int, CallEntry] = {}
            for place in turn:
                if deliveries[place].group in behind:
                    failed[place] = RetryableError("an earlier delivery of its item has failed")
                    continue
                try:
                    entries[place] = self._fitting(deliveries[place])
                except PoisonChange as error:
                    failed[place] = error
            for call in cut(entries, self.sink.capacity):
                failed |= await self._send(call)
        return [failed.get(place) for place in range(len(deliveries))]

    def _fitting(self, delivery: Delivery) -> CallEntry:
        try:
            entry = self.sink.entry(delivery)
        except (TypeError, ValueError) as error:
            raise unsendable(self.sink.service, error) from None
        if entry.size > self.sink.capacity.each:
            most = self.sink.capacity.each
            raise PoisonChange(f"{self.sink.service} takes {most} bytes, this has {entry.size}")
        return entry

    async def _send(self, entries: dict[int, CallEntry]) -> dict[int, Exception]:
        """Make one call; return the errors, by place."""
        try:
            codes = await self.sink.call(self.client, [e.wire for e in entries.values()])
        except AwsError as error:
            code = code_of(error)
            if len(entries) == 1 or _bare(code) not in _CONTENT:
                return {place: self._fault(code, _CONTENT_ONLY) for place in entries}
            found: dict[int, Exception] = {}
            for place, entry in entries.items():
                found |= await self._send({place: entry})
            return found
        return {
            place: self._fault(code, _CONTENT)
            for place, code in zip(entries, codes, strict=True)
            if code is not None
        }

    def _fault(self, code: str, poison: frozenset[str]) -> Exception:
        if _bare(code) in poison:
            return PoisonChange(f"{self.sink.service} never takes it: {code}")
        return refusal(self.sink.service, code)


def refusal(service: str, code: str) -> RetryableError:
    """Return the error of a delivery that the service did not take for now."""
    text = f"{service} answered {code}"
    return RetryableError(text, why=text)


def unsendable(service: str, error: Exception) -> StreamkitError:
    """Return the error of a delivery whose body has no form as text; it shows no data."""
    return PoisonChange(
        f"{service} takes only text, and the body cannot be turned into it ({type(error).__name__})"
    )


def failed_codes(reply: Mapping[str, Any], count: int) -> list[str | None]:
    """Read a reply that lists what succeeded and failed, each with its place as `Id`."""
    codes: list[str | None] = [NOT_ANSWERED] * count
    for success in reply.get("Successful", ()):
        codes[int(success["Id"])] = None
    for failure in reply.get("Failed", ()):
        codes[int(failure["Id"])] = str(failure.get("Code", NOT_ANSWERED))
    return codes


def _bare(code: str) -> str:
    """Return a code without the service's name, which some services put before it."""
    return code.rpartition(".")[2]
