"""The four operations of DynamoDB Streams.

The engine registers `OPERATIONS` for the service `dynamodbstreams`. `GetRecords` has a second form
in `ENCODED`, which returns the page: its JSON is joined from records that were encoded once, so a
door never encodes a page again. Both forms do the same.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import md5
from itertools import islice
from typing import Any, Protocol

import msgspec

from streamkit.local.all_streams import Streams
from streamkit.local.errors import ApiError, serialization, validation
from streamkit.local.iterators import TYPES, ShardIterator, expired, position, trimmed
from streamkit.local.limits import described_too_often, read_too_often, too_many_readers
from streamkit.local.parameters import (
    at_least_length,
    at_most_length,
    member,
    one_of,
    structure,
    violation,
    violations,
    whole,
)
from streamkit.local.records import EngineRecord
from streamkit.local.shards import EngineShard
from streamkit.local.stream_settings import StreamSettings
from streamkit.local.streams import Stream

_Payload = dict[str, Any]


class HasStreams(Protocol):
    """The part of the engine that these operations need."""

    streams: Streams


def list_streams(engine: HasStreams, payload: _Payload) -> dict[str, Any]:
    """Carry out `ListStreams`: all streams or one table's, paged, in the order of their ARNs."""
    limit = _limit(payload, 100)
    table = _text(payload, "TableName")
    start = _text(payload, "ExclusiveStartStreamArn") or ""
    name = table.rpartition("/")[2] if table is not None else None
    streams = [stream for stream in engine.streams.all(name) if stream.arn > start]
    body: dict[str, Any] = {
        "Streams": [
            {
                "StreamArn": stream.arn,
                "StreamLabel": stream.label,
                "TableName": stream.table_name,
            }
            for stream in streams[:limit]
        ]
    }
    if len(streams) > limit:
        body["LastEvaluatedStreamArn"] = streams[limit - 1].arn
    return body


def describe_stream(engine: HasStreams, payload: _Payload) -> dict[str, Any]:
    """Carry out `DescribeStream`: return a page of the shards that are listed now."""
    settings = engine.streams.settings
    limit = min(_limit(payload, 100), settings.listing_page)
    stream = _stream(engine, payload)
    start = _shard_id(payload, "ExclusiveStartShardId")
    parent_id = _filtered_parent(payload)
    now = engine.streams.clock()
    if not stream.described.grants(now, settings.describe_rate):
        raise described_too_often(stream.arn)
    if settings.ignore_shard_filter:
        parent_id = None
    listed = list(islice(_listed(stream, start, parent_id, now), limit + 1))
    description: dict[str, Any] = {
        "StreamArn": stream.arn,
        "StreamLabel": stream.label,
        "StreamStatus": stream.status,
        "StreamViewType": stream.view_type,
        "CreationRequestDateTime": round(stream.created, 3),
        "TableName": stream.table_name,
        "KeySchema": stream.key_schema,
        "Shards": [_described(stream, shard, now) for shard in listed[:limit]],
    }
    if len(listed) > limit:
        description["LastEvaluatedShardId"] = listed[limit - 1].id
    return {"StreamDescription": description}


def get_shard_iterator(engine: HasStreams, payload: _Payload) -> dict[str, Any]:
    """Carry out `GetShardIterator`: a position in a shard, listed or not."""
    kind = _required(payload, "ShardIteratorType")
    _required(payload, "ShardId")
    shard_id = _shard_id(payload, "ShardId") or ""
    _refuse(kind, "shardIteratorType", one_of(*TYPES)(kind))
    stream = _stream(engine, payload)
    shard = _shard(stream, shard_id)
    now = engine.streams.clock()
    after = position(shard, payload, now, now - stream.settings.publish_delay)
    iterator = ShardIterator(stream.arn, shard.id, after, now, engine.streams.new_reader())
    return {"ShardIterator": str(iterator)}


def get_records(engine: HasStreams, payload: _Payload) -> dict[str, Any]:
    """Carry out `GetRecords`: the next records of a shard, and the next iterator if any."""
    return read_page(engine, payload).body


@dataclass
class RecordsRead:
    """A reply of `GetRecords`, whose last page of a shard has no iterator that follows."""

    records: list[EngineRecord]
    following: ShardIterator | None

    @cached_property
    def body(self) -> dict[str, Any]:
        """Return the reply."""
        body: dict[str, Any] = {"Records": [record.wire() for record in self.records]}
        if self.following is not None:
            body["NextShardIterator"] = str(self.following)
        return body

    def encoded(self) -> bytes:
        """Return the reply's JSON."""
        end = b"]}"
        if self.following is not None:
            end = b'],"NextShardIterator":' + msgspec.json.encode(str(self.following)) + b"}"
        return b'{"Records":[' + b",".join([record.encoded() for record in self.records]) + end


def read_page(engine: HasStreams, payload: _Payload) -> RecordsRead:
    """Carry out `GetRecords`; return its page."""
    streams = engine.streams
    limit = _limit(payload, 1000)
    iterator = ShardIterator.parse(_required(payload, "ShardIterator"))
    stream = streams.find(iterator.arn)
    if stream is None:
        raise _missing(iterator.arn)
    now, settings = streams.clock(), stream.settings
    if now - iterator.issued > settings.iterator_lifetime:
        raise expired()
    shard = _shard(stream, iterator.shard_id)
    _check_limits(shard, iterator.reader, now, settings)
    after = iterator.after
    if after < shard.trimmed:
        raise trimmed()
    records: list[EngineRecord] = []
    if not _happens(streams, settings.empty_page_chance):
        records = shard.page(after, limit, now - settings.publish_delay)
        if records:
            after = records[-1].sequence
        at_end = shard.closed is not None and after >= shard.last
        if at_end and (not records or _happens(streams, settings.end_with_records_chance)):
            return RecordsRead(records, None)
    return RecordsRead(records, iterator._replace(after=after, issued=now))


OPERATIONS: dict[str, Callable[[HasStreams, _Payload], dict[str, Any]]] = {
    "DescribeStream": describe_stream,
    "GetRecords": get_records,
    "GetShardIterator": get_shard_iterator,
    "ListStreams": list_streams,
}

ENCODED: dict[str, Callable[[HasStreams, _Payload], RecordsRead]] = {"GetRecords": read_page}


def _check_limits(shard: EngineShard, reader: int, now: float, settings: StreamSettings) -> None:
    if not shard.readers.admits(reader, now, settings.readers):
        raise too_many_readers(shard.id)
    if not shard.read.grants(now, settings.read_rate):
        raise read_too_often(shard.id)


def _happens(streams: Streams, chance: float) -> bool:
    return chance > 0 and streams.rng.random() < chance


def _listed(
    stream: Stream, start: str | None, parent_id: str | None, now: float
) -> Iterator[EngineShard]:
    """Walk the shards that a listing shows behind `start`, in its order."""
    left = stream.catalogue()
    ids = left.ids() if parent_id is None else left.children(parent_id)
    order = _by_age
    if stream.settings.unordered_listing:
        order = _meaningless
        ids = sorted(ids, key=order)
    first = 0 if start is None else bisect_right(ids, order(start), key=order)
    for place in range(first, len(ids)):
        shard = left.find(ids[place])
        if shard is not None and _is_listed(stream, shard, now):
            yield shard


def _is_listed(stream: Stream, shard: EngineShard, now: float) -> bool:
    if shard.hidden:
        return False
    return shard.parent_id is None or now - shard.created >= stream.settings.children_hidden


def _described(stream: Stream, shard: EngineShard, now: float) -> dict[str, Any]:
    numbers = {"StartingSequenceNumber": str(shard.start)}
    looks_open = shard.closed is None or (
        stream.disabled is None and now - shard.closed < stream.settings.parents_open
    )
    if not looks_open:
        numbers["EndingSequenceNumber"] = str(shard.last)
    described: dict[str, Any] = {"ShardId": shard.id, "SequenceNumberRange": numbers}
    if shard.parent_id is not None:
        described["ParentShardId"] = shard.parent_id
    return described


def _filtered_parent(payload: _Payload) -> str | None:
    shard_filter = payload.get("ShardFilter")
    if shard_filter is None:
        return None
    kind = _text(structure(shard_filter), "Type")
    if kind is not None:
        _refuse(kind, "shardFilter.type", one_of("CHILD_SHARDS")(kind))
    shard_id = _shard_id(shard_filter, "ShardId", "shardFilter.shardId")
    if kind is None or shard_id is None:
        missing = "Type" if kind is None else "ShardId"
        raise validation(f"{missing} must be specified in a ShardFilter")
    return shard_id


def _shard_id(payload: _Payload, name: str, where: str | None = None) -> str | None:
    """Return the shard id of a parameter, which has 28 to 65 characters."""
    value = _text(payload, name)
    if value is not None:
        constraint = at_least_length(value, 28) or at_most_length(value, 65)
        _refuse(value, where or member(name), constraint)
    return value


def _refuse(value: object, where: str, constraint: str | None) -> None:
    if constraint:
        raise violations([violation(value, where, constraint)])


def _by_age(shard_id: str) -> str:
    return shard_id


def _meaningless(shard_id: str) -> str:
    return md5(shard_id.encode(), usedforsecurity=False).hexdigest()


def _stream(engine: HasStreams, payload: _Payload) -> Stream:
    arn = _required(payload, "StreamArn")
    if not arn.startswith("arn:") or "/stream/" not in arn:
        raise validation("Invalid StreamArn")
    stream = engine.streams.find(arn)
    if stream is None:
        raise _missing(arn)
    return stream


def _missing(arn: str) -> ApiError:
    message = f"Requested resource not found: Stream: {arn} not found"
    return ApiError("ResourceNotFoundException", message)


def _shard(stream: Stream, shard_id: str) -> EngineShard:
    shard = stream.shard(shard_id)
    if shard is None:
        message = f"Requested resource not found: Shard does not exist: {shard_id}"
        raise ApiError("ResourceNotFoundException", message)
    return shard


def _limit(payload: _Payload, maximum: int) -> int:
    limit: int | None = payload.get("Limit")
    if limit is None:
        return maximum
    _refuse(limit, "limit", whole(1, maximum)(limit))
    return limit


def _text(payload: _Payload, name: str) -> str | None:
    value = payload.get(name)
    if value is not None and not isinstance(value, str):
        raise serialization("Unexpected value type in payload")
    return value


def _required(payload: _Payload, name: str) -> str:
    value = _text(payload, name)
    if value is None:
        raise violations([violation(None, member(name), "Member must not be null")])
    return value
