"""Parking: a change that failed for a handler, and the changes of its item that wait behind it.

A parked change is just an effect, committed with the cursor. It starts a parked queue for its
handler and item key. Later changes of the item for that handler queue behind it; every other item
flows on.

    queue item    head ───────► first parked change, the next to be redriven, when it is due
                  tail ───────► last one; a queue action moves it IF the queue exists
    parked item   next ───────► the change behind it, numbered by sequence number: never reused
    holds item    set of queues; the cursor names the chunk, its children inherit the name

The set of queued keys in a `holds` item is an upper bound: a queue that was redriven until empty is
gone, and the shard's owner finds out when it next queues a change. Shapes and actions only:
`planning` decides when to park, `worker.redriver` empties the queues.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from streamkit.changes import ItemKey
from streamkit.core.handler import Payload, Policy
from streamkit.effects import Guard
from streamkit.errors import DecodeError, PoisonChange
from streamkit.model.conditions import absent, present
from streamkit.observe.frames import user_place
from streamkit.progress.actions import QUEUE, Action, GuardSource, Wire
from streamkit.progress.control import ControlSpace
from streamkit.stream.decode import Record
from streamkit.stream.decode.envelope import StreamRecord

PART_BYTES = 300_000
"""The size of the items into which a larger record is cut; an item holds 400 KB."""

IMAGES_BYTES = 3_000_000
"""The most bytes of images that are parked. Two images hold at most 800 KB; they exceed this, and a
transaction, only as JSON, which writes a control character in six bytes."""

LATE = "Late"
"""The kind of failure of a change that may have been applied, and is therefore never run again."""

UNREADABLE = "Unreadable"
"""The kind of failure of a record that cannot be read, see `unreadable`."""

LAMBDA_CHUNKS = tuple(f"lambda.{number}.0" for number in range(16))
"""The chunks in which the Lambda host, which has no cursors, lists its queued keys."""

_GROWTH = 3
"""The factor by which each pause between two tries of a parked change grows."""


def queue_name(handler: str, key: ItemKey) -> str:
    """Return the name of the parked queue of one item and handler."""
    text = f"{handler}\0{key.pk!r}\0{key.sk!r}"
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def chunk_of(queue: str, chunks: Sequence[str]) -> str:
    """Return the chunk for a parked queue, chosen by its name, which begins with hex digits."""
    return chunks[int(queue[:8], 16) % len(chunks)]


_DETAIL_LENGTH = 1000
"""An error's text and place together are cut to this length; the text is cut first."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a handler could not process a change. `detail` stays in the table: it may hold data.

    `place` is where the user's code raised it. A failure that does not heal, which a handler
    declares poison, is not tried again unless a person asks. An image that does not fit its entity
    may heal, once a release that is under way knows the new shape.
    """

    kind: str
    detail: str
    attempts: int = 1
    place: str = ""
    heals: bool = True

    @classmethod
    def of(cls, error: BaseException, attempts: int) -> "Failure":
        """Describe an exception, with the place where the user's code raised it."""
        place = user_place(error)
        heals = isinstance(error, DecodeError) or not isinstance(error, PoisonChange)
        at = f" at {place}"[:_DETAIL_LENGTH] if place else ""
        detail = f"{str(error)[: _DETAIL_LENGTH - len(at)]}{at}"
        return cls(type(error).__name__, detail, attempts, at.strip(), heals)

    def told(self, payload: Payload) -> str:
        """Return the text to store beside a payload: only `whole` payloads hold item data."""
        return self.detail if payload == "whole" else self.place


def next_due(
    policy: Policy, failure: Failure, tries: int, now: float, spread: float = 1.0
) -> int | None:
    """Return when a parked change is tried again, in epoch seconds; None means stuck.

    Args:
        policy: its handler's policy.
        failure: why it is parked (still).
        tries: how often it was tried since it was parked, or since a person asked for it.
        now: epoch seconds.
        spread: a factor around 1, so that changes that failed together are not retried together.
    """
    if not failure.heals or tries >= policy.retry_limit:
        return None
    grown = policy.retry_seconds * float(_GROWTH) ** min(tries, 99)
    return math.ceil(now + min(grown, policy.retry_seconds_max) * spread)


class ParkedRecord(msgspec.Struct, frozen=True):
    """The stored form of a parked change: enough to run the handler without the stream.

    `due` is when it is tried again automatically, in epoch seconds; None means that it is stuck.
    `to` names the recipient that it is parked for, in a fan-out. `build` is the aggregate's build
    that counts it, 0 if none was under way. `generation` is the one that parks it, 0 if its host
    does not know.
    """

    handler: str
    entity: str
    shard: str
    position: str
    record: bytes
    failure: Failure | None
    at: int
    due: int | None = 0
    payload: Payload = "whole"
    to: str = ""
    build: int = 0
    generation: int = 0


def payload_of(record: Record, wanted: Payload) -> Payload:
    """Return what to store of a record: only keys, if no transaction could hold its images."""
    images = (record.old_image, record.new_image)
    size = sum(len(bytes(image)) for image in images if image is not None)
    return wanted if size <= IMAGES_BYTES else "keys"


def stored(record: Record, payload: Payload) -> bytes:
    """Return the bytes to store of a record: the whole record, or all except its images."""
    if payload == "whole":
        return record.to_bytes()
    inner = record.dynamodb
    bare = StreamRecord(
        created_at=inner.created_at,
        keys=inner.keys,
        sequence_number=inner.sequence_number,
        size_bytes=inner.size_bytes,
        view_type=inner.view_type,
    )
    return msgspec.structs.replace(record, dynamodb=bare).to_bytes()


def waiting_state(due: int | None) -> dict[str, Wire]:
    """Return the attributes of a queue item that say when its first change is tried next."""
    return {"stuck": {"BOOL": True}} if due is None else {"due": {"N": str(due)}}


def park(space: ControlSpace, queue: str, parked: ParkedRecord, chunk: str) -> list[Action]:
    """Return the actions that park the first change of an item and handler, and start its queue."""
    head = space.put(
        {
            "lane": {"S": queue},
            "handler": {"S": parked.handler},
            "head": {"S": parked.position},
            "tail": {"S": parked.position},
            "chunk": {"S": chunk},
            "since": {"N": str(parked.at)},
            **waiting_state(parked.due),
        },
        "lane",
        queue,
    )
    if parked.generation:  # a rewind drops the queues of the generations before it
        head.item["generation"] = {"N": str(parked.generation)}
    head.guards.append((Guard(absent), GuardSource(parked.position, queue, QUEUE)))
    hold = space.with_name(queue, "holds", chunk, among="lanes")
    hold.sets["chunk"] = {"S": chunk}
    return [head, hold, *_store(space, queue, parked)]


def queue_behind(
    space: ControlSpace, queue: str, parked: ParkedRecord, tail: str, *, guarded: bool
) -> list[Action]:
    """Return the actions that put a change behind the last one of a queue, if it still exists."""
    move = space.update("lane", queue)
    move.sets["tail"] = {"S": parked.position}
    if guarded:
        move.guards.append((Guard(present), GuardSource(parked.position, queue, QUEUE)))
    link = space.update("parked", queue, tail)
    link.sets["next"] = {"S": parked.position}
    return [move, link, *_store(space, queue, parked)]


def _store(space: ControlSpace, queue: str, parked: ParkedRecord) -> list[Action]:
    attributes: dict[str, Wire] = {
        "lane": {"S": queue},
        "handler": {"S": parked.handler},
        "entity": {"S": parked.entity},
        "shard": {"S": parked.shard},
        "position": {"S": parked.position},
        "at": {"N": str(parked.at)},
    }
    if parked.failure is not None:
        attributes |= {
            "error": {"S": parked.failure.kind},
            "detail": {"S": parked.failure.told(parked.payload)},
            "attempts": {"N": str(parked.failure.attempts)},
        }
    for name, text in (("payload", parked.payload), ("to", parked.to)):
        if text not in ("whole", ""):
            attributes[name] = {"S": text}
    if parked.build:
        attributes["build"] = {"N": str(parked.build)}
    pieces = [
        parked.record[at : at + PART_BYTES] for at in range(0, len(parked.record), PART_BYTES)
    ]
    actions = []
    if len(pieces) == 1:
        attributes["record"] = {"B": pieces[0]}
    else:
        attributes["parts"] = {"N": str(len(pieces))}
        for number, piece in enumerate(pieces):
            part = space.put({"record": {"B": piece}}, "part", queue, parked.position, str(number))
            actions.append(part)
    return [space.put(attributes, "parked", queue, parked.position), *actions]


@dataclass(frozen=True, slots=True)
class Parked:
    """A parked change as read back from the table."""

    queue: str
    handler: str
    entity: str
    shard: str
    position: str
    at: int
    next: str | None = None
    error: str | None = None
    detail: str | None = None
    attempts: int = 0
    parts: int = 0
    payload: Payload = "whole"
    to: str = ""
    build: int = 0
    record: bytes = field(default=b"", repr=False)


def read_parked(item: Mapping[str, Any]) -> Parked:
    """Read a parked change from its item; the record of a large one is in `parts` items."""
    return Parked(
        queue=item["lane"]["S"],
        handler=item["handler"]["S"],
        entity=item["entity"]["S"],
        shard=item["shard"]["S"],
        position=item["position"]["S"],
        at=int(item["at"]["N"]),
        next=item["next"]["S"] if "next" in item else None,
        error=item["error"]["S"] if "error" in item else None,
        detail=item["detail"]["S"] if "detail" in item else None,
        attempts=int(item.get("attempts", {"N": "0"})["N"]),
        parts=int(item.get("parts", {"N": "0"})["N"]),
        payload="keys" if "payload" in item else "whole",
        to=item["to"]["S"] if "to" in item else "",
        build=int(item.get("build", {"N": "0"})["N"]),
        record=bytes(item["record"]["B"]) if "record" in item else b"",
    )
