"""Unreadable records are parked where an operator finds them, and later records go on.

A record without keys, or with an unknown kind of event, belongs to no item, so no handler can run
for it and nothing can queue behind it. It is parked as it came, in a parked queue of its own
among those of the Lambda host, which every listing reads. It is stuck there until a person discards
it.

In: records. Out: parked changes; the reader goes on only after they are stored. The queue's name is
a hash of the record, and it is parked IF absent. So repeating it changes nothing, and it needs no
part of a commit. On failure: calls that are throttled or not answered are repeated.
"""

import hashlib
import random
from collections.abc import Iterable

import anyio

from streamkit.aws import AwsError, code_of, trouble_of
from streamkit.core.parking import (
    LAMBDA_CHUNKS,
    UNREADABLE,
    Failure,
    ParkedRecord,
    chunk_of,
    park,
    payload_of,
    stored,
)
from streamkit.errors import InvariantError
from streamkit.observe.logger import get_logger
from streamkit.observe.meters import Meters
from streamkit.progress.clock import Clock
from streamkit.progress.cursor import CursorStore
from streamkit.progress.transaction import SENT_AGAIN, transact
from streamkit.progress.verdicts import Invalid
from streamkit.stream.decode import Record

HANDLER = "(unreadable)"
"""The name that stands for a handler, because it is unknown which handlers the record concerns."""
_AGAIN_SECONDS = 5.0

log = get_logger("streamkit.unreadable")


async def set_aside(
    store: CursorStore,
    records: Iterable[Record],
    shard: str,
    clock: Clock,
    rng: random.Random,
    meters: Meters,
) -> None:
    """Park the records that have a flaw, each once; return when all of them are in the table.

    Raises:
        ConfigurationError: the credentials may not write.
    """
    for record in records:
        if record.flaw:
            await _park(store, record, shard, clock, rng, meters)


async def _park(
    store: CursorStore,
    record: Record,
    shard: str,
    clock: Clock,
    rng: random.Random,
    meters: Meters,
) -> None:
    queue = hashlib.blake2b(record.to_bytes(), digest_size=12).hexdigest()
    payload = payload_of(record, "whole")
    parked = ParkedRecord(
        handler=HANDLER,
        entity="",
        shard=shard,
        position=record.position,
        record=stored(record, payload),
        failure=Failure(UNREADABLE, record.flaw, 0, heals=False),
        at=int(clock.time()),
        due=None,
        payload=payload,
    )
    actions = park(store.space, queue, parked, chunk_of(queue, LAMBDA_CHUNKS))
    schemas = {store.space.schema.name: store.space.schema}
    while True:
        try:
            # The position is written later: after a death the next owner meets the record again,
            # and the queue, whose name is made of the record, is there already.
            sent = await transact(store.dynamodb, schemas, actions, rng)
            break
        except AwsError as error:
            if trouble_of(error) not in SENT_AGAIN:
                raise
            log.warning("record.unreadable", shard=shard, queue=queue, code=code_of(error))
        await anyio.sleep(_AGAIN_SECONDS)
    if isinstance(sent, Invalid):
        raise InvariantError("DynamoDB finds the write that parks a record invalid")
    if sent is None:
        meters.unreadable.add()
        log.error("record.unreadable", shard=shard, queue=queue, flaw=record.flaw)
