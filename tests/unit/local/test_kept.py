"""An engine that is kept in a folder is the same when it is opened again."""

import errno
import os
import pickle
import random
import time

import anyio
import pytest

from streamkit.local.engine import Engine
from streamkit.local.kept import Kept, WrongData, header
from streamkit.testing.loop import run_virtually
from tests.tables import streamed


def new():
    return Engine(rng=random.Random(1), shards=2)


def called(engine, operation, **payload):
    service = "dynamodb" if "TableName" in payload else "dynamodbstreams"
    status, body = engine.call(service, operation, payload)
    assert status == 200, body
    return body


def put(engine, text):
    called(engine, "PutItem", TableName="Orders", Item={"PK": {"S": text}, "n": {"N": "1"}})


def records(engine):
    """Return the keys of all records of the stream, by shard."""
    arn = called(engine, "DescribeTable", TableName="Orders")["Table"]["LatestStreamArn"]
    shards = called(engine, "DescribeStream", StreamArn=arn)["StreamDescription"]["Shards"]
    found = {}
    for shard in shards:
        at = {"StreamArn": arn, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        iterator = called(engine, "GetShardIterator", **at)["ShardIterator"]
        page = called(engine, "GetRecords", ShardIterator=iterator)["Records"]
        found[shard["ShardId"]] = [
            (int(one["dynamodb"]["SequenceNumber"]), one["dynamodb"]["Keys"]["PK"]["S"])
            for one in page
        ]
    return found


@pytest.fixture
def kept(tmp_path):
    kept = Kept.open(tmp_path / "data", new)
    kept.engine.call("dynamodb", "CreateTable", streamed("Orders", "PK"))
    for number in range(20):
        put(kept.engine, str(number))
    return kept


def test_items_streams_and_positions_are_the_same_after_a_start(kept):
    before = records(kept.engine)
    kept.store()
    assert b"itertools" not in kept.file.read_bytes()  # Python 3.14 does not pickle what it has
    again = Kept.open(kept.file.parent, new).engine
    assert records(again) == before
    assert called(again, "Scan", TableName="Orders")["Count"] == 20
    put(again, "later")
    after = records(again)
    assert after.keys() == before.keys()
    assert sum(map(len, after.values())) == 21
    assert all(after[shard][: len(before[shard])] == before[shard] for shard in before)
    assert all(numbers == sorted(numbers) for numbers in after.values())


def test_a_clock_that_was_put_ahead_stays_ahead(kept):
    ahead = kept.engine.advance(3 * 3600)
    kept.store()
    again = Kept.open(kept.file.parent, new).engine
    assert again.clock() >= ahead > time.time() + 2 * 3600
    assert again.at("eu-west-1").clock() >= ahead


def test_a_process_that_dies_while_it_writes_leaves_the_snapshot_before(kept, monkeypatch):
    kept.store()
    put(kept.engine, "more")

    def dies(_engine, out, protocol):
        out.write(b"half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr("pickle.dump", dies)
    with pytest.raises(KeyboardInterrupt):
        kept.store()
    again = Kept.open(kept.file.parent, new).engine
    assert called(again, "Scan", TableName="Orders")["Count"] == 20


def test_a_snapshot_is_on_disk_before_it_takes_the_place_of_the_one_before(kept, monkeypatch):
    done = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr("os.fsync", lambda number: done.append("sync") or sync(number))
    monkeypatch.setattr("os.replace", lambda *names: done.append("replace") or replace(*names))
    kept.store()
    assert done == ["sync", "replace", "sync"]


@pytest.mark.parametrize(
    "stored",
    [b"streamkit's local engine, 0123\nx", b"no snapshot", header() + b"broken", header()],
)
def test_what_cannot_be_read_is_said_and_stays(tmp_path, stored):
    (tmp_path / "engine").write_bytes(stored)
    with pytest.raises(WrongData, match="delete it"):
        Kept.open(tmp_path, new)
    assert (tmp_path / "engine").read_bytes() == stored


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(WrongData, match="file"):
        Kept.open(tmp_path / "file" / "data", new)
    with pytest.raises(WrongData, match="is a file; name a folder"):
        Kept.open(tmp_path / "file", new)


def test_changes_are_stored_a_second_later_and_reads_store_nothing(kept):
    written = []

    class Watched(Kept):
        def store(self):
            written.append(1)

    async def main():
        changes = 0
        watched = Watched(kept.engine, kept.file)
        async with anyio.create_task_group() as group:
            group.start_soon(watched.keep, lambda: changes, pytest.fail)
            await anyio.sleep(60)
            assert written == []
            changes = 5
            await anyio.sleep(1.5)
            assert len(written) == 1
            await anyio.sleep(60)
            assert len(written) == 1
            group.cancel_scope.cancel()
        assert len(written) == 2, "the last one is at the end"

    run_virtually(main)


def test_a_full_disk_is_told_once_and_ends_nothing(kept, monkeypatch):
    """The engine serves on from memory, and stores all again when there is room."""
    full = OSError(errno.ENOSPC, "No space left on device")
    told = []

    def refuses(_engine, out, protocol):
        out.write(b"half")
        raise full

    async def main():
        changes = 1
        async with anyio.create_task_group() as group:
            group.start_soon(kept.keep, lambda: changes, told.append)
            with monkeypatch.context() as patched:
                patched.setattr(pickle, "dump", refuses)
                await anyio.sleep(0.1)
                changes = 2
                await anyio.sleep(30)
                assert [kept.file.exists(), *kept.file.parent.iterdir()] == [False]
                (said,) = told
                assert "cannot be written (No space left on device): changes since" in said
            await anyio.sleep(2)
            assert told[1:] == [f"{kept.file} is written again"]
            group.cancel_scope.cancel()
        assert Kept.open(kept.file.parent, pytest.fail).engine

    run_virtually(main)
