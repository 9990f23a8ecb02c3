"""What a stream does not serve is told from what it does not keep, and neither is passed over."""

from types import SimpleNamespace

import msgspec
import pytest

from streamkit.core.parked.payload import records_between, whole_record
from streamkit.errors import RetentionLost
from streamkit.stream.decode.envelope import Record


def entry(number):
    keys = {"pk": {"S": "a"}}
    return {
        "eventName": "INSERT",
        "eventID": f"e{number}",
        "dynamodb": {"Keys": keys, "SequenceNumber": str(number)},
    }


class Stream:
    """In place of the clients: serves these pages, each the numbers of its records, then ends."""

    def __init__(self, *pages):
        self.pages = list(pages)
        self.streams = self

    async def get_shard_iterator(self, **where):
        return {"ShardIterator": "first"}

    async def get_iterator(self, **where):
        return "first"

    async def get_page(self, iterator, *, limit):
        body = {"Records": [entry(number) for number in self.pages.pop(0)]}
        if self.pages:
            body["NextShardIterator"] = "next"
        return msgspec.json.encode(body)


def parked(number):
    record = msgspec.json.decode(msgspec.json.encode(entry(number)), type=Record)
    return SimpleNamespace(record=record.to_bytes(), payload="keys", shard="shardId-1")


async def test_a_record_is_read_after_some_empty_pages():
    record = await whole_record(Stream([], [], [5], []), "arn", parked(5))
    assert record.sequence_number == "5"


@pytest.mark.parametrize("pages", [([6], []), ([],), ([], [])])
async def test_a_record_is_gone_if_a_later_one_or_the_end_comes_in_its_place(pages):
    failure = await whole_record(Stream(*pages), "arn", parked(5))
    assert (failure.kind, failure.heals) == ("RecordGone", False)


async def test_empty_pages_say_nothing_of_the_record_of_a_parked_change():
    failure = await whole_record(Stream(*[[]] * 20), "arn", parked(5))
    assert (failure.kind, failure.heals) == ("RecordUnserved", True)


async def test_a_batch_is_read_to_its_last_record_and_no_further():
    stream = Stream([3, 4], [], [5], [6], [])
    records = await records_between(stream, "arn", "shard", "3", "5")
    assert [record.sequence_number for record in records] == ["3", "4", "5"]
    assert len(stream.pages) == 2
    records = await records_between(Stream([3, 6], []), "arn", "shard", "3", "5")
    assert [record.sequence_number for record in records] == ["3"]


@pytest.mark.parametrize("pages", [([3, 4],), ([3, 4], *[[]] * 20)])
async def test_a_batch_that_is_not_served_to_its_end_is_a_possible_loss(pages):
    with pytest.raises(RetentionLost, match="2 were found") as caught:
        await records_between(Stream(*pages), "arn", "shard", "3", "5")
    assert not caught.value.certain
