"""`streamkit archive`, and what an archive means for other commands."""

from datetime import UTC, datetime

import anyio
import pytest
from botocore.exceptions import ClientError

from streamkit import App
from streamkit.archive import BucketArchive, DirectoryArchive
from streamkit.archive.shards import ArchivedShards
from streamkit.cli.loading import _part
from streamkit.errors import ConfigurationError, DeclarationError
from streamkit.operate.inspection import inspect_app
from streamkit.operate.past.archives import verify_archive
from streamkit.operate.past.past import open_past
from streamkit.operate.permissions.hosts import policy_for
from streamkit.operate.restore.restore import restore_table
from streamkit.operate.restore.target import RestoreWish
from streamkit.operate.rewind import rewind
from streamkit.testing.archives import MemoryArchive
from tests.simulation.archived import SELDOM, put
from tests.simulation.archived import app_of as notes
from tests.simulation.test_restore import TARGET


def statements(app, host):
    return {one.sid: one for one in policy_for(app, host).statements}


def test_an_archive_in_a_bucket_needs_three_actions_and_a_directory_none():
    for host in ("worker", "operator"):
        bucket = App("a", table="Table", archive=BucketArchive("s3://changes/deals"))
        found = statements(bucket, host)
        assert found["Archive"].actions == ("s3:GetObject", "s3:PutObject")
        assert found["Archive"].resources == ("arn:aws:s3:::changes/deals/*",)
        assert found["ArchiveList"].actions == ("s3:ListBucket",)
        assert found["ArchiveList"].resources == ("arn:aws:s3:::changes",)
        directory = App("a", table="Table", archive=DirectoryArchive("changes"))
        assert "Archive" not in statements(directory, host)


def test_an_archive_does_not_change_the_fingerprint_of_an_app():
    plain = App("a", table="Table")
    kept = App("a", table="Table", archive=MemoryArchive())
    assert plain.fingerprint() == kept.fingerprint()
    assert kept.writer.name == "a.archive"
    assert kept.writer.archive is kept.archive


def test_the_name_of_the_writer_is_taken():
    app = App("a", table="Table", archive=MemoryArchive())
    with pytest.raises(DeclarationError, match="an app has one archive"):
        app.listener("archive")
    assert App("b", table="Table").listener("archive").copies is False


def test_an_app_without_an_archive_has_none_to_verify(harness_of):
    harness = harness_of(notes(None))
    with pytest.raises(ConfigurationError, match="has no archive="):
        harness.operate(lambda aws: verify_archive(harness.app, aws))


def test_the_writer_is_named_like_a_listener_of_the_app():
    app = App("a", table="Table", archive=MemoryArchive())
    assert _part(app, "archive") is app.writer
    assert _part(App("b", table="Table"), "archive") is None


@pytest.mark.parametrize("since", [0.0, 1.0])
def test_an_archive_that_was_never_written_is_not_whole(harness_of, since):
    harness = harness_of(App("a", table="Table", archive=MemoryArchive()))
    with pytest.raises(ConfigurationError, match=r"memory .*never written.*a\.archive"):
        harness.operate(lambda aws: verify_archive(harness.app, aws, since))


def test_an_archive_lacks_what_was_changed_before_it_began(harness_of):
    harness = harness_of(notes(MemoryArchive()))
    began = harness.world.clock.time()
    harness.settle()
    verify = lambda at: harness.operate(lambda aws: verify_archive(harness.app, aws, at))  # noqa: E731
    assert verify(began).whole
    (gap,) = verify(began - 3600).gaps
    assert gap.text.startswith("the archive begins at 2027-01-15")
    assert verify(0.0).began >= int(began)


def test_check_says_that_an_archive_cannot_be_read(harness_of, monkeypatch):
    harness = harness_of(notes(MemoryArchive()))
    found = lambda: harness.operate(lambda aws: inspect_app(harness.app, aws)).findings  # noqa: E731
    assert not [one for one in found() if "archive" in one.text]

    async def refused(self, name):
        raise ClientError({"Error": {"Code": "AccessDenied"}}, "GetObject")

    monkeypatch.setattr(MemoryArchive, "read", refused)
    (finding,) = [one for one in found() if "archive" in one.text]
    assert finding.severity == "error"
    assert "the archive in memory cannot be read: AccessDenied" in finding.text

    async def silent(self, name):
        await anyio.sleep_forever()

    monkeypatch.setattr(MemoryArchive, "read", silent)
    (finding,) = [one for one in found() if "archive" in one.text]
    assert "does not answer within 20 s" in finding.text

    async def asked(aws):
        for command in (verify_archive, lambda *about: open_past(*about).__aenter__()):
            with pytest.raises(ConfigurationError, match=r"does not answer within 20 s: check"):
                with anyio.fail_after(60):
                    await command(harness.app, aws)

    harness.operate(asked)


def test_check_says_that_an_archive_cannot_be_written(harness_of, monkeypatch):
    harness = harness_of(notes(MemoryArchive()))
    found = lambda: harness.operate(lambda aws: inspect_app(harness.app, aws))  # noqa: E731
    assert found().ok
    assert harness.app.archive.objects == {}
    call = MemoryArchive._call

    async def refused(self, operation, work):
        if operation == "PutObject":
            raise ClientError({"Error": {"Code": "AccessDenied"}}, operation)
        return await call(self, operation, work)

    monkeypatch.setattr(MemoryArchive, "_call", refused)
    (finding,) = found().findings
    assert finding.severity == "error"
    assert "the archive in memory cannot be written: AccessDenied; check its name" in finding.text
    assert "the permissions that `streamkit iam` prints" in finding.text


def test_an_archive_that_is_begun_with_its_stream_has_what_was_written_before_it(harness_of):
    """A writer looks at the stream some seconds after the first change."""
    harness = harness_of(notes(MemoryArchive()))
    put(harness, 1)
    harness.advance("4s")
    put(harness, 2)
    harness.settle()
    harness.stop()
    verify = lambda at: harness.operate(lambda aws: verify_archive(harness.app, aws, at))  # noqa: E731
    found = verify(0.0)
    assert found.began <= found.first < found.until
    assert verify(found.first).whole


@pytest.mark.parametrize(("age", "whole"), [(0, True), (900, True), (901, False)])
async def test_an_archive_of_an_older_stream_does_not_promise_what_may_be_trimmed(age, whole):
    archive = ArchivedShards(MemoryArchive(), "T/2026-09-01T08:00:00.250")
    created = datetime(2026, 9, 1, 8, tzinfo=UTC).timestamp()
    await archive.begin(created + age)
    assert await archive.began() == (created if whole else created + age)


def surveys(harness):
    return [c.operation for c in harness.world.calls].count("DescribeTable")


@pytest.mark.parametrize("command", ["verify", "sample", "restore", "rewind"])
def test_a_command_asks_once_what_the_table_is(harness_of, command):
    harness = harness_of(notes(MemoryArchive()), settings=SELDOM, others=[TARGET])
    put(harness, 1)
    harness.settle()
    harness.advance("30h")
    put(harness, 2)
    harness.settle()
    harness.stop()
    clock, app = harness.world.clock, harness.app
    at = datetime.fromtimestamp(clock.time() - 25 * 3600, UTC)
    work = {
        "verify": lambda aws: verify_archive(app, aws, clock=clock),
        "sample": lambda aws: verify_archive(app, aws, sample=5, clock=clock),
        "restore": lambda aws: restore_table(app, aws, "Then", RestoreWish(clock.time()), clock),
        "rewind": lambda aws: rewind(app, aws, at, clock=clock),
    }[command]
    before = surveys(harness)
    harness.operate(work)
    target = command == "restore"
    assert surveys(harness) - before == 1 + target


def test_after_a_change_of_place_a_command_says_so_and_a_copy_makes_the_archive_whole(harness_of):
    former, new = MemoryArchive(), MemoryArchive()
    harness = harness_of(notes(former), settings=SELDOM)
    put(harness, 1)
    harness.settle()
    harness.advance("20m")
    harness.stop()
    verify = lambda: harness.operate(  # noqa: E731
        lambda aws: verify_archive(harness.app, aws, clock=harness.world.clock)
    )
    assert verify().whole
    harness.app.use_archive(new)
    for has in ("has nothing", "has some objects"):
        said = rf"memory {has} of Notes/.* although notes\.archive has read the stream up to 2027-"
        with pytest.raises(ConfigurationError, match=said) as raised:
            verify()
        assert "Stop the workers and copy all of it here" in str(raised.value)
        put(harness, 2)
        harness.settle()
        harness.advance("20m")
        harness.stop()
    new.objects |= former.objects
    assert verify().whole
