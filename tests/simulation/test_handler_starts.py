"""A handler with a start of its own runs for every change since then, once, and in order."""

import gzip
import re
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated

import anyio
import pytest
from structlog.testing import capture_logs

from streamkit import Add, Aggregate, App, Count, Entity, Inserted, PoisonChange, Put, Query, Send
from streamkit.archive import BucketArchive
from streamkit.aws_lambda.environment import check_start, open_environment
from streamkit.cli.describe_app import describe_outline
from streamkit.cli.describing import describe_status
from streamkit.cli.exits import ExitCode
from streamkit.cli.following import after_status
from streamkit.cli.verdicts import verdict
from streamkit.errors import ConfigurationError, DeclarationError, RetentionLost
from streamkit.fleet.generation import newest_generation
from streamkit.operate.explanation import explain_item
from streamkit.operate.inspection import inspect_app
from streamkit.operate.outline import outline_of
from streamkit.operate.permissions.hosts import policy_for
from streamkit.operate.spending import read_spending
from streamkit.operate.status import read_status
from streamkit.settings import Settings
from streamkit.testing import Harness, every_crash, every_freeze
from streamkit.testing.archives import MemoryArchive
from streamkit.testing.recording import Recorder
from streamkit.testing.world import Process
from streamkit.worker import pipeline_factory
from tests.seeds import seeds
from tests.simulation.archived import RARELY, SELDOM, Copy, Note, app_of, copied, put, rare_notes

STREAM = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
OFTEN = Settings(poll_ceiling=5, heartbeat=10, lease=30, list_interval=60, look_interval=5)


class Tally(Entity, pk="TALLY", sk="TALLY"):
    count: int = 0


class Seen(Entity, pk="SEEN", sk="{number}"):
    number: int


def at(moment):
    return datetime.fromtimestamp(moment, UTC)


def with_tally(archive, start, **options):
    """The app in its next version: it has a new handler, which starts at a moment."""
    app = app_of(archive, **options)

    @app.on(start=start)
    def tally(change: Inserted[Note]) -> tuple[Add[Tally], Put[Seen]]:
        number = change.new.number
        return Add(Tally.key(), count=1), Put(Seen(number=number))

    return app


def deploy(harness, app):
    """Replace the worker by one of another version."""
    harness.stop()
    harness.app, harness._settings = app, RARELY
    harness.settle()


def seen(harness):
    return sorted(one.number for one in harness.scan(Seen))


def tallied(harness):
    """Return what the handler saw, which must be each change once."""
    numbers = seen(harness)
    total = harness.get(Tally.key())
    assert (total.count if total else 0) == len(numbers)
    return numbers


def status(harness, app):
    clock = harness.world.clock
    return harness.operate(lambda aws: read_status(app, aws, clock=clock))


def test_a_handler_begins_in_the_archive_and_stays_a_consumer_of_its_own(harness_of):
    archive = MemoryArchive()
    harness = harness_of(app_of(archive), shards=2, settings=SELDOM)
    moments = rare_notes(harness, 4)
    deploy(harness, with_tally(archive, at(moments[1] - 60)))
    assert tallied(harness) == [1, 2, 3]
    put(harness, 4, 5)
    harness.settle()
    assert tallied(harness) == [1, 2, 3, 4, 5]
    assert copied(harness) == list(range(6))


def test_the_text_of_a_date_is_the_beginning_of_that_day_in_utc():
    app = with_tally(None, "2026-10-01")
    assert app.listeners["tally"].start == datetime(2026, 10, 1, tzinfo=UTC)
    assert App("a", table="T", start="2026-10-01T08:00:00+02:00").start.hour == 8
    for wrong in ("soon", "2026-10-01T08:00:00", 7):
        with pytest.raises(DeclarationError, match="start="):
            with_tally(None, wrong)


def test_a_fan_out_with_a_start_tells_each_recipient_of_every_change_since_then(harness_of):
    archive = MemoryArchive()
    harness = harness_of(app_of(archive), shards=1, settings=SELDOM)
    moments = rare_notes(harness, 3)
    app = app_of(archive)

    def all_copies(change: Inserted[Note]) -> Query[Copy]:
        return Copy.query(number=0)

    @app.fan_out(all_copies, start=at(moments[1] - 60))
    def tell(change: Inserted[Note], to: Copy) -> Put[Seen]:
        return Put(Seen(number=change.new.number))

    deploy(harness, app)
    assert [one.name for one in app.listeners["tell"].handlers] == ["tell"]
    assert seen(harness) == [1, 2]


def test_apps_that_do_not_use_it_keep_their_fingerprint():
    archive = MemoryArchive()
    assert with_tally(archive, "2026-10-01").fingerprint() == app_of(archive).fingerprint()


def test_a_handler_is_declared_where_its_error_says(harness_of):
    app = with_tally(None, "2026-10-01")
    with pytest.raises(DeclarationError, match=r"test_handler_starts\.py.*start=.*tally.*already"):

        @app.on(start="2026-10-02", name="tally")
        def other(change: Inserted[Note]) -> None: ...

    with pytest.raises(DeclarationError, match="a listener cannot have listeners"):

        @app.listener("mail").on(start="2026-10-02")
        def mailed(change: Inserted[Note]) -> None: ...


def test_a_moment_within_the_streams_day_needs_no_archive(harness_of):
    harness = harness_of(app_of(None), settings=SELDOM)
    rare_notes(harness, 2)
    put(harness, 2)
    harness.advance("3h")
    moment = harness.world.clock.time()
    put(harness, 3)
    harness.advance("3h")
    deploy(harness, with_tally(None, at(moment)))
    put(harness, 4)
    harness.settle()
    assert tallied(harness) == [3, 4]


@pytest.mark.parametrize("archive", [None, MemoryArchive()])
def test_a_moment_before_a_new_stream_is_the_beginning_of_the_stream(harness_of, archive):
    harness = harness_of(with_tally(archive, "2020-01-01"), settings=RARELY)
    put(harness, 1, 2)
    harness.settle()
    assert tallied(harness) == [1, 2]


def test_an_archive_that_began_with_its_stream_has_every_change_before_it(harness_of):
    archive = MemoryArchive()
    harness = harness_of(app_of(archive), settings=SELDOM)
    rare_notes(harness, 3)
    deploy(harness, with_tally(archive, "2020-01-01"))
    assert tallied(harness) == [0, 1, 2]


def test_a_handler_with_a_start_sends_to_the_apps_sinks(harness_of):
    app = app_of(None)

    @app.on(start="2020-01-01")
    def told(change: Inserted[Note]) -> Send:
        return Send(events, {"number": change.new.number})

    events = app.sink(Recorder("events"))
    harness = harness_of(app, settings=RARELY)
    put(harness, 1)
    harness.settle()
    assert [sent.body for sent in events.once] == [{"number": 1}]


@pytest.fixture
def at_a_rate(monkeypatch):
    """Return the consumers of which commits wait for a rate; more come with their shards."""
    names = set()

    class Noted(pipeline_factory.PacedCommitter):
        def __init__(self, rate, client, space, *parts):
            names.add(space.consumer)
            super().__init__(rate, client, space, *parts)

    monkeypatch.setattr(pipeline_factory, "PacedCommitter", Noted)
    return names


def test_status_says_how_far_a_handler_is_that_catches_up(harness_of, at_a_rate):
    archive = MemoryArchive()
    harness = harness_of(app_of(archive), shards=1, settings=SELDOM)
    moments = []
    for number in range(4):
        moments += rare_notes(harness, 1, first=number)
        harness.roll()
    harness.settle()
    app = app_of(archive)

    @app.on(start=at(moments[0] - 60), timeout=86_400)
    async def tally(change: Inserted[Note]) -> Put[Seen]:
        await anyio.sleep(1800)
        return Put(Seen(number=change.new.number))

    harness.stop()
    harness.app, harness._settings = app, RARELY.model_copy(update={"catch_up_wcu": 5})
    harness._run(harness_begins(harness))
    behind = set()
    for _ in range(20):
        harness.advance("10m")
        workers = {worker.app.name: worker for worker in harness.worker.workers[0].workers}
        behind |= {name for name, worker in workers.items() if worker.report.catches_up}
        found = status(harness, app.listeners["tally"]).operations
        if seen(harness):
            break
    assert [(one.kind, one.name) for one in found] == [("catch-up", "notes.tally")]
    assert 0 < found[0].share < 1
    assert found[0].left > 0
    assert status(harness, app).operations == ()
    assert behind == {"notes.tally"}
    assert at_a_rate == {"notes.tally"}
    harness.settle()
    assert seen(harness) == [0, 1, 2, 3]
    assert status(harness, app.listeners["tally"]).operations == ()
    assert not workers["notes.tally"].report.catches_up


async def harness_begins(harness):
    harness.worker.ensure()


def test_the_commands_know_the_handlers_consumer(harness_of, capsys):
    """What is parked, what an item went through, what is paid, what roles may do, and its start."""
    archive = MemoryArchive()
    harness = harness_of(app_of(archive), shards=1, settings=SELDOM, lenient=True)
    moments = rare_notes(harness, 2)
    app = app_of(archive)
    start = at(moments[1] - 60)

    @app.on(start=start, attempts=1)
    def tally(change: Inserted[Note]) -> Put[Seen]:
        if change.new.number == 1:
            raise PoisonChange("one is too many")
        return Put(Seen(number=change.new.number))

    deploy(harness, app)
    put(harness, 2)
    harness.settle()
    assert [(one.handler, one.error) for one in harness.parked()] == [("tally", "PoisonChange")]
    item = harness.operate(lambda aws: explain_item(app, aws, "NOTE#1", "NOTE#1", history=True))
    assert [one.runs for one in item.sightings] == [("notes/copy", "notes.tally/tally")]
    assert item.sightings[0].states["notes"] == "done"
    assert item.sightings[0].states["notes.tally"] == "stuck for tally"
    spent = harness.operate(lambda aws: read_spending(app, aws))
    assert [one.consumer for one in spent] == ["notes", "notes.archive", "notes.tally"]
    describe_outline(outline_of(app))
    text = f"listener notes.tally, which starts at {start.isoformat()}"
    assert text in capsys.readouterr().out
    bucket = app_of(BucketArchive("s3://changes/notes"))
    bucket.on(start=start)(tally)
    actions = {action for one in policy_for(bucket, "worker").statements for action in one.actions}
    assert {"s3:GetObject", "s3:ListBucket", "dynamodb:GetRecords"} <= actions


# -- what is refused ------------------------------------------------------------------------------


def halted(harness):
    """Return why the new handler's consumer has halted; the others go on."""
    put(harness, 100)
    harness.settle()
    assert 100 in copied(harness)
    (error,) = [error for one in harness.worker.workers for error in one.errors]
    assert isinstance(error, RetentionLost)
    assert seen(harness) == []
    return str(error)


def generation_of(harness, app):
    store = harness.tables.store(app, harness._aws)
    return harness._run(newest_generation(store))


def test_a_start_before_the_archive_begins_is_refused_and_the_app_goes_on(harness_of):
    archive = MemoryArchive()
    harness = harness_of(app_of(None), shards=1, settings=SELDOM)
    moments = rare_notes(harness, 3)
    deploy(harness, app_of(archive))
    harness.advance("30h")
    app = with_tally(archive, at(moments[0]))
    deploy(harness, app)
    text = halted(harness)
    assert "the archive begins at" in text
    assert "--accept-loss" in text
    assert generation_of(harness, app.listeners["tally"]) is None


def test_status_says_that_a_handler_halted_at_its_start_since_when_and_why(harness_of, capsys):
    harness = harness_of(app_of(None), settings=SELDOM)
    moments = rare_notes(harness, 3)
    app = with_tally(None, at(moments[0]))
    tally = app.listeners["tally"]
    assert status(harness, tally).halts == ()
    began = harness.world.clock.time()
    deploy(harness, app)
    why = halted(harness)
    (halt,) = status(harness, tally).halts
    assert (halt.consumer, halt.why) == ("notes.tally", why)
    assert began <= halt.since < harness.world.clock.time()
    assert status(harness, app).halts == (halt,)  # the app names it, too
    harness.crash()
    harness.settle()  # the same again
    for one, code in ((tally, ExitCode.RETENTION_LOST), (app, ExitCode.RETENTION_LOST)):
        found = status(harness, one)
        assert found.halts == (halt,)
        describe_status(found)
        said = " ".join(capsys.readouterr().out.split())
        assert "notes.tally does not run: it halted at its start, at 2027-01-" in said
        assert "Declare a later start=, or let it begin nevertheless with --accept-loss" in said
        assert verdict(found, alive=True)[0] == code
        assert after_status(found) == ("check",)
    harness.crash()
    tally.accept_losses()
    deploy(harness, app)
    assert [status(harness, one).halts for one in (tally, app)] == [(), ()]


def test_a_start_older_than_the_stream_is_refused_without_an_archive(harness_of):
    harness = harness_of(app_of(None), settings=SELDOM)
    moments = rare_notes(harness, 3)
    deploy(harness, with_tally(None, at(moments[0])))
    assert "the app has no archive=" in halted(harness)


@pytest.mark.parametrize("harm", ["damage", "remove"])
def test_a_start_with_a_gap_behind_it_is_refused_until_a_person_accepts_it(harness_of, harm):
    archive = MemoryArchive()
    harness = harness_of(app_of(archive), shards=1, settings=SELDOM)
    moments = rare_notes(harness, 4)
    (name,) = [n for n in archive.links if b"NOTE#2" in gzip.decompress(archive.objects[n])]
    getattr(archive, harm)(name)
    deploy(harness, with_tally(archive, at(moments[1] - 60)))
    assert name in halted(harness)
    harness.crash()
    app = with_tally(archive, at(moments[1] - 60))
    app.listeners["tally"].accept_losses()
    deploy(harness, app)
    assert tallied(harness) == [1, 3, 100]
    assert generation_of(harness, app.listeners["tally"]).lost


@pytest.mark.parametrize("lineage", [True, False])
def test_a_start_with_a_whole_shard_missing_is_refused(harness_of, lineage):
    """Somebody has removed it: what descends from it would be read before its ancestors."""
    archive = MemoryArchive()
    harness = harness_of(app_of(archive), shards=1, settings=SELDOM)
    moments = []
    for number in range(3):
        moments += rare_notes(harness, 1, first=number)
        harness.roll()
        harness.settle()
    (link,) = [n for n in archive.links if b"NOTE#1" in gzip.decompress(archive.objects[n])]
    shard = link.split("/")[-2]
    for name in [n for n in archive.objects if f"/shards/{shard}/" in n]:
        archive.remove(name)
    for name in [n for n in archive.objects if lineage and n.endswith(f"/{shard}")]:
        archive.remove(name)
    deploy(harness, with_tally(archive, at(moments[0] - 60)))
    said = halted(harness)
    assert f"its parent {shard} is not archived" in said or f"{link} is missing" in said
    harness.crash()
    if lineage:  # else it is not known how old the shard was
        deploy(harness, with_tally(archive, at(moments[2] - 60)))
        assert tallied(harness) == [2, 100]


@pytest.mark.parametrize("whole", [True, False])
def test_a_start_without_what_the_archives_writer_has_stored_is_refused(harness_of, whole):
    """Somebody has removed the end of a shard, or all that named the shard: only a cursor knows."""
    archive = MemoryArchive()
    harness = harness_of(app_of(archive), shards=1, settings=SELDOM)
    moments = rare_notes(harness, 3)
    (last,) = [n for n in archive.links if b"NOTE#2" in gzip.decompress(archive.objects[n])]
    shard = last.split("/")[-2]
    for name in list(archive.objects):
        named = re.findall(r"shardId-[\w-]+", name)[-1:]  # the child, in the lineage
        if named > [shard] or (named == [shard] and (whole or name >= last)):
            archive.remove(name)
    app = with_tally(archive, at(moments[0] - 60))
    (finding,) = findings(harness, app)
    deploy(harness, app)
    said = halted(harness)
    lacks = f"shard {shard}: it was recorded in the lineage" if whole else f"{last} is missing"
    assert lacks in said
    assert lacks in finding


def test_a_gap_before_the_start_is_no_reason_to_refuse(harness_of):
    archive = MemoryArchive()
    harness = harness_of(app_of(archive), shards=1, settings=SELDOM)
    moments = rare_notes(harness, 2)
    (name,) = [n for n in archive.links if b"NOTE#0" in gzip.decompress(archive.objects[n])]
    archive.damage(name)
    harness.roll()
    harness.settle()
    harness.advance("3d")
    moments += rare_notes(harness, 2, first=2)
    deploy(harness, with_tally(archive, at(moments[2] - 3600)))
    assert tallied(harness) == [2, 3]


def test_a_start_in_the_future_is_refused(harness_of):
    harness = harness_of(app_of(None), settings=RARELY)
    harness.settle()
    later = at(harness.world.clock.time()) + timedelta(hours=1)
    with pytest.raises(ConfigurationError, match="cannot start in the future"):
        deploy(harness, with_tally(None, later))


def test_a_table_that_had_another_stream_has_not_every_change_since_then(harness_of):
    harness = harness_of(app_of(None, on_loss="resume"), settings=RARELY)
    harness.settle()
    harness.advance("1h")
    moment = at(harness.world.clock.time())
    harness.stop()
    for spec in ({"StreamEnabled": False}, STREAM):
        harness._run(
            harness._aws.dynamodb.update_table(TableName="Notes", StreamSpecification=spec)
        )
        harness.advance("1h")
    app = with_tally(None, moment)
    app.accept_losses()  # not for the handler with a start of its own
    harness.app = app
    assert "the table's stream began at" in halted(harness)


def test_status_says_that_an_app_halted_before_its_tables_new_stream(harness_of):
    harness = harness_of(app_of(None), settings=RARELY)
    harness.settle()
    harness.stop()
    for spec in ({"StreamEnabled": False}, STREAM):
        update = harness._aws.dynamodb.update_table(TableName="Notes", StreamSpecification=spec)
        harness._run(update)
        harness.advance("1h")
    with pytest.raises(RetentionLost, match=r"is a new one.*--accept-loss"):
        harness.settle()
    (halt,) = status(harness, harness.app).halts
    assert halt.consumer == "notes"
    assert "is a new one" in halt.why


def findings(harness, app):
    found = harness.operate(lambda aws: inspect_app(app, aws))
    return [finding.text for finding in found.findings if finding.severity == "error"]


def test_check_says_before_a_deploy_that_a_handler_cannot_begin(harness_of):
    archive = MemoryArchive()
    harness = harness_of(app_of(archive), shards=1, settings=SELDOM)
    moments = rare_notes(harness, 4)
    assert findings(harness, with_tally(archive, at(moments[1]))) == []
    (text,) = findings(harness, with_tally(None, at(moments[1])))
    assert "App('notes.tally')" in text
    assert "the app has no archive=" in text
    later = at(harness.world.clock.time()) + timedelta(hours=1)
    (text,) = findings(harness, with_tally(archive, later))
    assert "cannot start in the future" in text
    (name,) = [n for n in archive.links if b"NOTE#2" in gzip.decompress(archive.objects[n])]
    archive.damage(name)
    (text,) = findings(harness, with_tally(archive, at(moments[1])))
    assert name in text


def test_a_handler_that_loses_its_start_is_refused_by_the_app(harness_of):
    """The app stands elsewhere in the stream: changes would be missed, or run twice."""
    archive = MemoryArchive()
    harness = harness_of(app_of(archive), settings=SELDOM)
    moments = rare_notes(harness, 2)
    deploy(harness, with_tally(archive, at(moments[1] - 60)))
    joined = app_of(archive)

    @joined.on
    def tally(change: Inserted[Note]) -> Put[Seen]:
        return Put(Seen(number=change.new.number))

    said = r"test_handler_starts.*a consumer of its own, notes\.tally"
    (text,) = findings(harness, joined)
    assert re.search(said, text)
    with pytest.raises(ConfigurationError, match=said):
        deploy(harness, joined)
    deploy(harness, with_tally(archive, at(moments[1] - 60)))
    put(harness, 2)
    harness.settle()
    assert tallied(harness) == [1, 2]


def test_functions_refuse_a_handler_with_a_start_and_say_who_runs_it(harness_of):
    app = with_tally(None, "2026-10-01")
    tally = app.listeners["tally"]
    with pytest.raises(ConfigurationError, match=r"let workers run it, with .*APP\.tally"):
        check_start(tally)
    harness = harness_of(app_of(None), settings=RARELY)
    put(harness, 1)
    harness.settle()
    harness.stop()
    with pytest.raises(ConfigurationError, match="let workers run it"):
        harness.operate(lambda aws: opened(aws, tally))
    app.listener("search")
    with capture_logs() as logged:
        harness.operate(lambda aws: opened(aws, app))
    assert ("consumer.apart", "notes.tally") in [
        (line["event"], line.get("consumer")) for line in logged
    ]
    assert ("listener.apart", ["notes.search"]) in [
        (line["event"], line.get("listeners")) for line in logged
    ]


async def opened(aws, app):
    @asynccontextmanager
    async def given():
        yield aws

    async with open_environment(app, connect_with=given):
        pass


def test_an_app_of_one_handler_with_a_start_says_where_the_start_belongs(harness_of):
    app = App("notes", table="Notes")

    @app.on(start="2020-01-01")
    def seen(change: Inserted[Note]) -> None: ...

    harness = harness_of(app, settings=RARELY)
    with pytest.raises(ConfigurationError, match="give the app that start"):
        harness.settle()


# -- aggregates ------------------------------------------------------------------------------------


class Notes(Aggregate[Note], pk="NOTES", sk="NOTES"):
    notes: Annotated[int, Count()] = 0


def test_an_aggregate_with_a_start_counts_since_then_and_needs_no_rebuild(harness_of):
    archive = MemoryArchive()
    harness = harness_of(app_of(archive), settings=SELDOM)
    moments = rare_notes(harness, 4)
    app = app_of(archive)
    app.aggregate(start=at(moments[1] - 60))(Notes)
    deploy(harness, app)
    put(harness, 4)
    harness.settle()
    assert harness.get(Notes.key()).notes == 4
    assert status(harness, app.listeners["Notes"]).needs_rebuild == ()


# -- roll-outs -------------------------------------------------------------------------------------


class Beside:
    """A worker of a version, beside the harness's own."""

    def __init__(self, harness, app):
        self.harness, self.process = harness, Process("beside", clock=harness.world.clock)
        running = harness.world.run_worker(
            app, process=self.process, settings=harness._settings, until_idle=False
        )
        self.task = harness._loop.create_task(running)

    def end(self):
        self.process.kill()
        self.harness.advance(1)
        assert self.task.result() is False


@pytest.mark.parametrize("seed", seeds(2))
def test_versions_with_and_without_the_handler_run_side_by_side(harness_of, seed):
    """The older one holds shards and does not know the handler; and is rolled back to later."""
    archive = MemoryArchive()
    harness = harness_of(app_of(archive), seed=seed, shards=3, settings=SELDOM)
    moments = rare_notes(harness, 3)
    harness.stop()
    harness._settings = RARELY  # versions meet from here on
    harness.settle()
    newer = with_tally(archive, at(moments[1] - 60))
    beside = Beside(harness, newer)
    for number in range(3, 7):
        put(harness, number)
        (harness.split if number == 4 else harness.roll)()
        harness.settle()
        harness.advance("20m")
    harness.stop()  # the older version is gone
    harness.app = newer
    put(harness, 7)
    harness.settle()
    beside.end()
    harness.advance("1h")
    assert tallied(harness) == list(range(1, 8))
    deploy(harness, app_of(archive))  # rolled back: nobody runs the handler
    put(harness, 8)
    harness.settle()
    harness.advance("40h")
    assert tallied(harness) == list(range(1, 8))
    deploy(harness, with_tally(archive, at(moments[1] - 60)))
    assert tallied(harness) == list(range(1, 9))
    assert copied(harness) == list(range(9))


# -- stops -----------------------------------------------------------------------------------------


def of_three_days():
    """Return three days of notes, over a roll, and the version with the new handler to come."""
    archive = MemoryArchive()
    harness = Harness(app_of(archive), shards=1, settings=SELDOM)
    moments = rare_notes(harness, 2)
    harness.roll()
    harness.settle()
    moments += rare_notes(harness, 1, first=2)
    harness.stop()
    harness.app = with_tally(archive, at(moments[1] - 60))
    harness._settings = OFTEN  # what follows takes minutes, not days
    return harness


def begun_late(harness):
    """Begin in the archive, and go on in the stream over a split."""
    put(harness, 3)
    harness.settle()
    harness.split()
    put(harness, 4)
    harness.settle()
    harness.advance("2m")
    harness.settle()
    assert tallied(harness) == [1, 2, 3, 4]
    assert copied(harness) == [0, 1, 2, 3, 4]
    assert not harness.parked()


def test_a_beginning_in_the_archive_survives_a_crash_at_any_call():
    assert [*every_crash(begun_late, of_three_days, sample=2)]


def test_a_beginning_in_the_archive_survives_a_freeze_at_any_call():
    assert [*every_freeze(begun_late, of_three_days, sample=2)]


def test_two_workers_begin_in_the_archive_at_once():
    with of_three_days() as harness:
        beside = Beside(harness, harness.app)
        begun_late(harness)
        beside.end()
