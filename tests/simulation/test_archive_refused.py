"""An archive that refuses calls, after a permission was lost: the app's handlers go on meanwhile."""

import pytest
from structlog.testing import capture_logs

from streamkit.cli.verdicts import verdict
from streamkit.operate.consumers import resume_consumer
from streamkit.operate.status import read_status
from streamkit.testing.archives import MemoryArchive
from streamkit.testing.rig import NotSettledError
from tests.simulation.archived import (
    RARELY,
    SELDOM,
    app_of,
    chains_are_whole,
    copied,
    dormant,
    numbers,
    put,
)

ALL = frozenset({"PutObject", "GetObject", "ListObjectsV2"})


def status(harness, app=None):
    return harness.operate(lambda aws: read_status(app or harness.app, aws))


def errors(logs):
    return {log["event"] for log in logs if log["log_level"] in ("error", "critical")}


@pytest.mark.parametrize("refused", [{"PutObject"}, {"GetObject"}, {"ListObjectsV2"}, ALL])
def test_handlers_go_on_while_the_archive_refuses_its_writer(harness_of, refused):
    archive = MemoryArchive()
    harness = harness_of(app_of(archive), settings=SELDOM)
    put(harness, 1)
    harness.settle()
    harness.advance("20m")
    archive.refuses = frozenset(refused)
    with capture_logs() as logs:
        for number in range(2, 6):
            put(harness, number)
            harness.roll()  # a shard begins, which its writer records
            harness.advance("1h")
            assert copied(harness) == list(range(1, number + 1))
    if "PutObject" in refused:
        assert errors(logs) == {"archive.refused"}
        (said,) = status(harness).refused
        assert "PutObject" in said
        assert status(harness, harness.app.writer).refused == (said,)
        assert said in verdict(status(harness), alive=True)[1]
    archive.refuses = frozenset()
    harness.advance("2h")
    assert sorted(numbers(archive)) == [1, 2, 3, 4, 5]
    assert "hole" not in chains_are_whole(archive)
    assert status(harness).refused == ()


def test_a_worker_starts_and_handlers_run_although_the_archive_refuses_all(harness_of):
    archive = MemoryArchive(refuses=ALL)
    harness = harness_of(app_of(archive), settings=SELDOM)
    put(harness, 1, 2)
    with pytest.raises(NotSettledError):  # the writer is not done
        harness.settle()
    assert copied(harness) == [1, 2]
    archive.refuses = frozenset()
    harness.settle()
    harness.stop()
    assert sorted(numbers(archive)) == [1, 2]


def test_a_shard_that_is_read_from_an_archive_which_refuses_it_waits_beside_the_pool(harness_of):
    archive = MemoryArchive()
    harness = harness_of(app_of(archive), settings=RARELY, shards=1)
    put(harness, 1)
    harness.settle()
    dormant(harness)
    for number in range(2, 6):
        put(harness, number)
        harness.settle()
        harness.advance("9h")
    archive.refuses = ALL
    with capture_logs() as logs:
        harness.operate(lambda aws: resume_consumer(harness.app, aws))
        harness.advance("2h")
    assert 5 not in copied(harness)
    assert "archive.refused" in errors(logs)
    # It leaves its place in the polling pool, and asks again later.
    assert "archive.undecided" in {log["event"] for log in logs}
    assert status(harness).refused
    archive.refuses = frozenset()
    harness.settle()
    assert copied(harness) == [1, 2, 3, 4, 5]
