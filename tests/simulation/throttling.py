"""Throttles that are told what to refuse, and transactions that take time and collide."""

import anyio
import msgspec

from streamkit.local.errors import ApiError
from streamkit.local.iterators import ShardIterator
from streamkit.local.transport import Response

_CODES = {
    "dynamodb": "ProvisionedThroughputExceededException",
    "dynamodbstreams": "LimitExceededException",
}


class Throttle:
    """Refuses the calls that fit, while `active`; `refused` counts them."""

    def __init__(self, fits):
        self.fits = fits
        self.active = False
        self.refused = 0

    async def intercept(self, call, apply):
        if not (self.active and self.fits(call)):
            return apply()
        self.refused += 1
        return Response.of_error(ApiError(_CODES[call.service], "slow down"))


def commits(call):
    return call.operation == "TransactWriteItems"


def heartbeats(call):
    return call.operation == "UpdateItem" and b"#members" in call.payload


def reads_of_the_app(call):
    return call.operation == "GetItem" and b"_sk#" not in call.payload


def pages_of(shard):
    """Return whether a call reads one shard."""

    def fits(call):
        if call.operation != "GetRecords":
            return False
        iterator = msgspec.json.decode(call.payload)["ShardIterator"]
        return ShardIterator.parse(iterator).shard_id == shard

    return fits


def shard_of(world, table, keys):
    """Name the shard that takes the records of an item."""
    (stream,) = world.engine.streams.all(table)
    shard = stream._open.at(stream._hash(keys))
    return shard.id


class Contention:
    """Lets each transaction hold its items for a while; one that meets a held item is cancelled.

    A plain write of a held item is refused as well. One instance stands between all processes and
    the engine, as the service does.
    """

    def __init__(self, seconds):
        self.seconds = seconds
        self.held = set()
        self.sent = self.cancelled = 0

    async def intercept(self, call, apply):
        if call.operation == "UpdateItem":
            if _key(msgspec.json.decode(call.payload)) in self.held:
                return Response.of_error(
                    ApiError("TransactionConflictException", "in a transaction")
                )
            return apply()
        if call.operation != "TransactWriteItems":
            return apply()
        entries = msgspec.json.decode(call.payload)["TransactItems"]
        keys = [_key(next(iter(entry.values()))) for entry in entries]
        self.sent += 1
        if not self.held.isdisjoint(keys):
            self.cancelled += 1
            held = ["TransactionConflict" if key in self.held else "None" for key in keys]
            reasons = [{"Code": code} for code in held]
            await anyio.sleep(self.seconds / 2)
            return Response.of_error(
                ApiError("TransactionCanceledException", "cancelled", CancellationReasons=reasons)
            )
        self.held.update(keys)
        try:
            await anyio.sleep(self.seconds)
            return apply()
        finally:
            self.held.difference_update(keys)


def _key(action):
    key = action.get("Key") or action["Item"]
    return action["TableName"], key["PK"]["S"], key["SK"]["S"]
