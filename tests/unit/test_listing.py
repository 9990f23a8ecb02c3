"""What a stream lists: all shards page by page, the children of one, and whether one is gone."""

from types import SimpleNamespace

import anyio
import pytest
from botocore.exceptions import ClientError

from streamkit.errors import StreamSilent
from streamkit.stream.lineage import Shard
from streamkit.stream.listing import is_gone, list_children, list_shards
from streamkit.testing.loop import run_virtually


def refused(code):
    return ClientError({"Error": {"Code": code}}, "DescribeStream")


def streams(*answers, asked=None):
    """Return clients whose calls to the stream give these answers, one after the other."""
    left = iter(answers)

    async def call(**request):
        if asked is not None:
            asked.append(request)
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return SimpleNamespace(streams=SimpleNamespace(describe_stream=call, get_shard_iterator=call))


def described(*shards, last=None, status="ENABLED"):
    entries = [{"ShardId": name, "ParentShardId": parent} for name, parent in shards]
    description = {"Shards": entries, "StreamStatus": status}
    return {"StreamDescription": description | ({"LastEvaluatedShardId": last} if last else {})}


@pytest.mark.parametrize(
    ("status", "enabled"), [("ENABLED", True), ("ENABLING", True), ("DISABLED", False)]
)
def test_a_stream_is_listed_page_by_page_and_each_page_waits_for_its_turn(status, enabled):
    asked, turns = [], []
    aws = streams(
        described(("a", None), last="a"),
        described(last="b"),  # a page may be empty
        described(("c", "a"), status=status),
        asked=asked,
    )

    async def turn():
        turns.append(len(asked))

    listing = run_virtually(lambda: list_shards(aws, "arn", turn=turn))
    assert listing.shards == (Shard("a"), Shard("c", "a"))
    assert listing.enabled is enabled
    assert [one.get("ExclusiveStartShardId") for one in asked] == [None, "a", "b"]
    assert turns == [0, 1, 2]


def test_a_shard_has_the_range_that_the_stream_says():
    entry = {"ShardId": "a", "SequenceNumberRange": {"StartingSequenceNumber": "5"}}
    aws = streams({"StreamDescription": {"Shards": [entry]}})
    (shard,) = run_virtually(lambda: list_shards(aws, "arn")).shards
    assert (shard.id, shard.parent, shard.starting, shard.ending) == ("a", None, "5", None)
    entry["SequenceNumberRange"]["EndingSequenceNumber"] = "9"
    aws = streams({"StreamDescription": {"Shards": [entry]}})
    (shard,) = run_virtually(lambda: list_shards(aws, "arn")).shards
    assert (shard.starting, shard.ending) == ("5", "9")


def test_children_are_those_of_their_parent_though_a_server_returns_every_shard():
    asked = []
    everyone = described(("p", None), ("c", "p"), ("d", "p"), ("e", "q"), status="DISABLED")
    listing = run_virtually(lambda: list_children(streams(everyone, asked=asked), "arn", "p"))
    assert [shard.id for shard in listing.shards] == ["c", "d"]
    assert not listing.enabled
    assert asked[0]["ShardFilter"] == {"Type": "CHILD_SHARDS", "ShardId": "p"}


def test_a_server_that_refuses_the_filter_leaves_children_to_a_full_listing():
    aws = streams(refused("ValidationException"))
    listing = run_virtually(lambda: list_children(aws, "arn", "p"))
    assert (listing.shards, listing.enabled) == ((), True)
    with pytest.raises(ClientError):
        run_virtually(lambda: list_children(streams(refused("AccessDenied")), "arn", "p"))


@pytest.mark.parametrize("code", ["ResourceNotFoundException", "TrimmedDataAccessException"])
def test_a_shard_is_gone_only_if_the_service_says_so(code):
    assert run_virtually(lambda: is_gone(streams(refused(code)), "arn", "a"))
    assert not run_virtually(lambda: is_gone(streams({"ShardIterator": "i"}), "arn", "a"))
    with pytest.raises(ClientError):
        run_virtually(lambda: is_gone(streams(refused("AccessDenied")), "arn", "a"))


def test_a_stream_that_does_not_answer_is_waited_for_a_bounded_time():
    async def hangs(**request):
        await anyio.sleep_forever()

    aws = SimpleNamespace(streams=SimpleNamespace(describe_stream=hangs, get_shard_iterator=hangs))

    async def main():
        with pytest.raises(StreamSilent):
            await list_children(aws, "arn", "p")
        with pytest.raises(StreamSilent):
            await is_gone(aws, "arn", "p")
        return anyio.current_time()

    assert run_virtually(main) == 40.0
