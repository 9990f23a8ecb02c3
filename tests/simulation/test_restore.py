"""A table as it was then: from the archive, above a base, into another table or an engine."""

import gzip
from contextlib import suppress
from functools import partial
from types import SimpleNamespace

import anyio
import pytest

from streamkit import App, Entity, Inserted
from streamkit.archive.link import Link
from streamkit.aws import connect
from streamkit.core.table_shape import TableShape
from streamkit.errors import ConfigurationError, LeaseLost, RetentionLost
from streamkit.local.engine import Engine
from streamkit.local.transport import session_class
from streamkit.model.codec import encode
from streamkit.model.schema import TableSchema
from streamkit.operate.past.archives import verify_archive
from streamkit.operate.replay.replay import replay
from streamkit.operate.replay.report import ReplayWish
from streamkit.operate.restore import restore
from streamkit.operate.restore import target as restore_target
from streamkit.operate.restore.restore import restore_into_engine, restore_table
from streamkit.operate.restore.target import TABLE, RestoreRefused, RestoreWish
from streamkit.progress.actions import item_ref
from streamkit.settings import Settings
from streamkit.testing import Harness, every_crash, every_freeze
from streamkit.testing.archives import MemoryArchive
from tests.exports import export
from tests.simulation.archived import RARELY, SELDOM, Note, app_of, put

TARGET = {
    "TableName": "Then",
    "KeySchema": [
        {"AttributeName": "PK", "KeyType": "HASH"},
        {"AttributeName": "SK", "KeyType": "RANGE"},
    ],
    "AttributeDefinitions": [
        {"AttributeName": "PK", "AttributeType": "S"},
        {"AttributeName": "SK", "AttributeType": "S"},
    ],
    "BillingMode": "PAY_PER_REQUEST",
}


@pytest.fixture
def harness(harness_of):
    return harness_of(app_of(MemoryArchive()), shards=1, settings=SELDOM, others=[TARGET])


def now(harness):
    return harness.world.clock.time()


def write(harness, number, text):
    key = f"NOTE#{number}"
    harness.put({"PK": key, "SK": key, "number": number, "text": text})


def state(items):
    """Return the notes among items in wire form: number to text."""
    notes = [item for item in items if item["PK"]["S"].startswith("NOTE#")]
    return {int(item["number"]["N"]): item.get("text", {"S": ""})["S"] for item in notes}


def there(harness, table="Then"):
    return state(harness.world.items(table))


def restored(harness, at, base="", into="Then", **more):
    wanted = RestoreWish(at, base, **more)
    clock = harness.world.clock
    return harness.operate(lambda aws: restore_table(harness.app, aws, into, wanted, clock))


def lived(harness):
    """Let notes change, over a day and shards; return the moments with what was there."""
    seen = []
    write(harness, 0, "never again")
    harness.settle()
    harness.advance("1h")
    for step in ("one", "two", "three", "four"):
        write(harness, 1, f"almost {step}")
        write(harness, 1, step)
        write(harness, len(seen) + 2, step)
        if step == "three":
            harness.delete(Note.key(number=2))
            harness.split()
        harness.settle()
        harness.advance("9h")
        seen.append((now(harness), there(harness, "Notes")))
        harness.advance("10s")
        if step == "two":
            harness.roll()
    return seen


def written(harness):
    """Let a note be archived, which is all that a restore that is refused looks at."""
    write(harness, 1, "one")
    harness.settle()
    harness.advance("1h")


def test_every_moment_is_restored_as_the_table_was_then(harness):
    for moment, was in lived(harness):
        clear(harness)
        done = restored(harness, moment)
        assert there(harness) == was
        assert "items that did not change since" in done.unknown


def clear(harness):
    async def work(aws):
        for item in harness.world.items("Then"):
            key = {name: item[name] for name in ("PK", "SK")}
            await aws.dynamodb.delete_item(TableName="Then", Key=key)

    harness.operate(work)


def test_above_the_table_every_item_is_known(harness):
    """The items that never changed since the archive began are in the table alone."""
    put(harness, 77)
    seen = lived(harness)
    for moment, was in seen:
        clear(harness)
        done = restored(harness, moment, TABLE)
        assert there(harness) == was
        assert done.unknown == ""


def unchanged(number):
    """Return a note that did not change since the archive began: only an export has it."""
    key = {"S": f"NOTE#{number}"}
    return {"PK": key, "SK": key, "number": {"N": str(number)}}


def test_above_an_export_of_any_moment_every_item_is_known(harness, tmp_path):
    seen = lived(harness)
    moment, was = seen[1]
    items = [*harness.world.items("Notes"), unchanged(97), unchanged(98), unchanged(99)]
    export(tmp_path, "Notes", items, moment=now(harness))
    done = restored(harness, moment, str(tmp_path))
    assert there(harness) == {**was, 97: "", 98: "", 99: ""}
    assert done.unknown == ""


def test_an_export_of_a_table_without_items_is_a_base(harness, tmp_path):
    ((moment, was), *_) = lived(harness)
    export(tmp_path, "Notes", [], moment=now(harness))
    restored(harness, moment, str(tmp_path))
    assert there(harness) == was


def test_an_export_that_is_older_than_the_archive_is_refused(harness, tmp_path):
    written(harness)
    export(tmp_path, "Notes", [unchanged(9)], moment=10**9)
    with pytest.raises(RestoreRefused, match="older than the archive"):
        restored(harness, now(harness), str(tmp_path))


def test_a_restore_above_a_part_of_an_export_is_refused_and_writes_nothing(harness, tmp_path):
    written(harness)
    export(tmp_path, "Notes", [unchanged(8), unchanged(9)], moment=now(harness))
    max(tmp_path.glob("data/*2.json.gz")).unlink()
    with pytest.raises(RestoreRefused, match="1 of 2 files are missing"):
        restored(harness, now(harness), str(tmp_path))
    assert harness.world.items("Then") == []


def test_a_file_of_an_export_that_is_not_as_it_was_exported_is_named_and_nothing_is_written(
    harness, tmp_path
):
    """When the file is whole again, the same command restores everything."""
    written(harness)
    moment = now(harness)
    export(tmp_path, "Notes", [unchanged(8), unchanged(9)], moment=moment, files=1)
    *_, file = sorted(tmp_path.glob("data/*"))
    whole = file.read_bytes()
    file.write_bytes(gzip.compress(gzip.decompress(whole).splitlines(keepends=True)[0]))
    with pytest.raises(RestoreRefused, match=file.name):
        restored(harness, moment, str(tmp_path))
    assert harness.world.items("Then") == []
    file.write_bytes(whole)
    restored(harness, moment, str(tmp_path))
    assert there(harness) == {1: "one", 8: "", 9: ""}


def test_a_restore_a_replay_and_a_sample_end_beside_a_worker_that_is_alive(harness_of):
    """Its heartbeats are in the table's stream: it is never silent for as long as the tip is."""
    alive = Settings(heartbeat=1, lease=4, look_interval=1)
    harness = harness_of(app_of(MemoryArchive()), shards=1, settings=alive, others=[TARGET])
    write(harness, 1, "one")
    harness.settle()
    clock, app = harness.world.clock, harness.app
    since = RestoreWish(now(harness))
    harness.advance("10s")
    wish = ReplayWish(since.at, clock.time() + 3600, ("copy",), "dry-run")

    async def ended(aws):
        with anyio.fail_after(100):
            await restore_table(app, aws, "Then", since, clock)
            assert (await verify_archive(app, aws, sample=5, clock=clock)).whole
            await replay(app, aws, wish, clock=clock)

    harness.operate(ended)
    assert there(harness) == {1: "one"}


def test_what_the_archive_does_not_have_yet_comes_from_the_stream(harness):
    write(harness, 1, "one")
    harness.settle()
    moment = now(harness)
    harness.advance("10s")
    stored = dict(harness.archive().objects)
    write(harness, 1, "two")
    write(harness, 2, "two")
    assert harness.archive().objects == stored
    restored(harness, moment)
    assert there(harness) == {1: "one"}


def test_a_table_with_an_item_is_refused(harness):
    written(harness)

    async def one(aws):
        await aws.dynamodb.put_item(TableName="Then", Item={"PK": {"S": "x"}, "SK": {"S": "x"}})

    harness.operate(one)
    with pytest.raises(RestoreRefused, match="not empty"):
        restored(harness, now(harness))


def test_a_moment_before_the_archive_or_in_the_future_is_refused(harness):
    written(harness)
    for shift in (-30 * 86400, 3600):
        with pytest.raises(RestoreRefused):
            restored(harness, now(harness) + shift)
        assert harness.world.items("Then") == []


def test_the_tables_of_the_app_are_refused(harness):
    written(harness)
    wanted = RestoreWish(now(harness))
    with pytest.raises(RestoreRefused, match="is a table of notes"):
        harness.operate(lambda aws: restore_table(harness.app, aws, "Notes", wanted))


@pytest.mark.parametrize("harm", ["damage", "cut", "remove"])
def test_what_the_archive_lacks_is_named_and_passed_over_only_on_request(harness, harm):
    ((moment, was), *_) = lived(harness)
    archive = harness.archive()
    later = (
        name for name in archive.links if Link.opened(name, archive.objects[name])[0].first > moment
    )
    getattr(archive, harm)(next(later))
    for base in ("", TABLE):
        clear(harness)
        with pytest.raises(RetentionLost):
            restored(harness, moment, base)
        done = restored(harness, moment, base, allow_loss=True)
        assert done.losses
        assert was.keys() <= there(harness).keys()


def test_another_restore_into_the_same_table_is_refused(harness):
    seen = lived(harness)
    archive = harness.archive()
    archive.remove(archive.links[0])
    with pytest.raises(RetentionLost):
        restored(harness, seen[1][0])
    with pytest.raises(RestoreRefused, match="a part of another restore"):
        restored(harness, seen[0][0])


def once_restored(harness):
    """Restore a table of three shards; a run that was stopped is begun again."""
    for number in range(3):
        write(harness, number, "one")
        harness.settle()
        harness.roll()
    harness.advance("1m")
    moment, was = now(harness), there(harness, "Notes")
    harness.advance("1m")
    write(harness, 0, "two")
    harness.delete(Note.key(number=1))
    write(harness, 3, "two")
    harness.settle()
    harness.advance("1h")
    with suppress(RestoreRefused):  # it was killed after its last call, and has just been finished
        restored(harness, moment, TABLE)
    assert there(harness) == was
    return was


def finished(harness):
    once_restored(harness)
    assert marks_in(harness, "Then") == []


def used(harness):
    """The application uses the table that was restored; a run that stood still thaws then."""
    was = once_restored(harness)
    use(harness, {name: {"S": "NOTE#0"} for name in ("PK", "SK")} | {"number": {"N": "0"}})
    harness.outlive()
    assert there(harness) == was | {0: ""}
    assert marks_in(harness, "Then") == []


def marks_in(harness, table):
    return [item for item in harness.world.items(table) if "_sk#restore" in str(item["PK"])]


def use(harness, item):
    """Write an item of the restored table, as the application does."""
    status, _ = harness.world.engine.call(
        "dynamodb", "PutItem", {"TableName": "Then", "Item": item}
    )
    assert status == 200


def rig():
    app = app_of(MemoryArchive())
    return Harness(app, shards=1, settings=RARELY, others=[TARGET], lenient=True)


def test_a_restore_killed_at_any_call_is_finished_by_the_same_command():
    assert list(every_crash(finished, rig, part="operation", sample=3))


def test_a_restore_frozen_at_any_call_writes_nothing_when_it_thaws():
    assert list(every_freeze(used, rig, part="operation", sample=3))


@pytest.mark.parametrize("call", range(8, 15))
def test_a_restore_that_stood_still_before_its_mark_leaves_a_table_that_is_in_use(call):
    """It has seen that the table is empty, another run restores and ends, and it writes its mark."""
    with rig() as harness:
        harness.freeze(at=call, thaw="end", part="operation")
        used(harness)


def test_a_restore_that_died_at_its_mark_is_not_continued_in_a_table_that_is_in_use(
    harness, monkeypatch
):
    ((moment, _), *_) = lived(harness)
    looked = restore_target._require_empty

    async def look_and_die(aws, target, mark):
        await looked(aws, target, mark)
        if harness.world.items("Then"):  # the mark is there
            raise RuntimeError("it dies")

    monkeypatch.setattr(restore_target, "_require_empty", look_and_die)
    with pytest.raises(RuntimeError, match="it dies"):
        restored(harness, moment)
    monkeypatch.undo()
    use(harness, {name: {"S": "NOTE#0"} for name in ("PK", "SK")} | {"number": {"N": "0"}})
    with pytest.raises(RestoreRefused, match="not empty"):
        restored(harness, moment)
    assert there(harness) == {0: ""}


def test_a_restore_that_finds_the_table_empty_and_is_overtaken_leaves_the_other_its_mark(
    harness, monkeypatch
):
    ((moment, _), *_) = lived(harness)
    archive = harness.archive()
    archive.remove(archive.links[0])  # the other stops there, and can be continued
    wanted, looked, marked = RestoreWish(moment), restore_target._require_empty, []

    async def look_and_be_overtaken(aws, target, mark):
        await looked(aws, target, mark)
        monkeypatch.undo()
        with pytest.raises(RetentionLost):
            await restore_table(harness.app, aws, "Then", wanted, harness.world.clock)
        marked.extend(marks_in(harness, "Then"))

    monkeypatch.setattr(restore_target, "_require_empty", look_and_be_overtaken)
    with pytest.raises(LeaseLost):
        restored(harness, moment)
    assert len(marked) == 1
    assert marks_in(harness, "Then") == marked


# -- other keys, and a rate ------------------------------------------------------------------------


def keyed(kind):
    """Return the request for a table whose keys are both of a type."""
    kinds = [{"AttributeName": name, "AttributeType": kind} for name in ("PK", "SK")]
    return TARGET | {"AttributeDefinitions": kinds}


CONTROL = TARGET | {"TableName": "Control"}
KEYS = {"N": int, "B": lambda number: str(number).encode()}


class Row(Entity, pk="{number}", sk="{number}"):
    number: int
    text: str


def keyed_app():
    app = App("notes", table="Notes", archive=MemoryArchive(), control_table="Control")

    @app.on
    def row(change: Inserted[Row]) -> None: ...

    return app


def keyed_rig(kind, *others):
    shape, tables = TableShape(pk_type=kind, sk_type=kind), [keyed(kind), CONTROL, *others]
    app = keyed_app()
    return Harness(app, shards=1, settings=RARELY, others=tables, shape=shape, lenient=True)


def keyed_state(harness, table):
    """Return the items of a table with such keys, as texts by key."""
    return {str(item["PK"]): item["text"]["S"] for item in harness.world.items(table)}


def note(harness, kind, number, text):
    key = KEYS[kind](number)
    harness.put({"PK": key, "SK": key, "text": text})


def once_restored_of(kind):
    """Restore a table of such keys in two shards; a run that was stopped is begun again."""

    def scenario(harness):
        for number in range(3):
            note(harness, kind, number, "one")
            harness.settle()
        harness.roll()
        harness.advance("1m")
        moment, was = now(harness), keyed_state(harness, "Notes")
        harness.advance("1m")
        note(harness, kind, 0, "two")
        note(harness, kind, 7, "two")
        harness.settle()
        harness.advance("1h")
        with suppress(RestoreRefused):  # it was killed after its last call
            restored(harness, moment, TABLE)
        assert keyed_state(harness, "Then") == was
        return was

    return scenario


def finished_of(kind):
    def scenario(harness):
        once_restored_of(kind)(harness)
        assert marks_in(harness, "Control") == []

    return scenario


def used_of(kind):
    """As `used`, with such keys."""

    def scenario(harness):
        was = once_restored_of(kind)(harness)
        key = encode(KEYS[kind](0))
        use(harness, {"PK": key, "SK": key, "text": {"S": "used"}})
        harness.outlive()
        assert keyed_state(harness, "Then") == was | {str(key): "used"}
        assert marks_in(harness, "Control") == []

    return scenario


@pytest.mark.parametrize("kind", KEYS)
def test_a_table_of_other_keys_is_restored_with_the_mark_in_the_control_table(kind):
    with keyed_rig(kind) as harness:
        finished_of(kind)(harness)


def test_a_restore_of_number_keys_killed_at_any_call_is_finished_by_the_same_command():
    rig = partial(keyed_rig, "N")
    assert list(every_crash(finished_of("N"), rig, part="operation", sample=3))


def test_a_restore_of_number_keys_frozen_at_any_call_writes_nothing_when_it_thaws():
    rig = partial(keyed_rig, "N")
    assert list(every_freeze(used_of("N"), rig, part="operation", sample=3))


def test_restores_into_two_tables_of_number_keys_do_not_disturb_each_other():
    with keyed_rig("N", keyed("N") | {"TableName": "Then2"}) as harness:
        restores_into_two_tables(harness)


def restores_into_two_tables(harness):
    note(harness, "N", 1, "one")
    harness.settle()
    harness.advance("1h")
    moment, archive = now(harness), harness.archive()
    note(harness, "N", 1, "two")
    harness.settle()
    harness.advance("40h")
    archive.remove(archive.links[0])
    with pytest.raises(RetentionLost):
        restored(harness, moment)
    with pytest.raises(RetentionLost):
        restored(harness, moment - 60, into="Then2")
    with pytest.raises(RestoreRefused, match="a part of another restore"):
        restored(harness, moment - 60)


def test_a_restore_uses_no_more_write_units_than_it_may(harness):
    for number in range(400):
        write(harness, number, "one")
    harness.settle()
    harness.advance("1h")
    began = now(harness)
    restored(harness, int(began), TABLE)
    assert now(harness) - began < 20
    clear(harness)
    began = now(harness)
    restored(harness, int(began), TABLE, units=50)
    least = 2 * 400 / 50  # a transaction uses two units for a small item
    assert least <= now(harness) - began <= 2 * least + 20
    assert len(there(harness)) == 400


async def test_an_app_without_an_archive_cannot_be_restored():
    async with connect(http_session=session_class(Engine())) as aws:
        with pytest.raises(ConfigurationError, match="has no archive="):
            await restore_table(app_of(None), aws, "Then", RestoreWish(0.0))


def test_the_engine_gets_the_items_and_a_stream_that_begins_behind_them(harness):
    seen = lived(harness)
    moment, was = seen[2]
    engine, clock, app = Engine(), harness.world.clock, harness.app

    async def work(aws):
        async with connect(http_session=session_class(engine)) as local:
            await restore_into_engine(app, aws, local, RestoreWish(moment, TABLE), clock)
            items = (await local.dynamodb.scan(TableName="Notes"))["Items"]
            described = (await local.dynamodb.describe_table(TableName="Notes"))["Table"]
            with pytest.raises(RestoreRefused, match="has a table"):
                await restore_into_engine(app, aws, local, RestoreWish(moment, TABLE), clock)
            return items, described["StreamSpecification"]["StreamViewType"]

    items, view = harness.operate(work)
    assert state(items) == was
    assert view == "NEW_AND_OLD_IMAGES"


@pytest.mark.parametrize(("shift", "base"), [(3600, ""), (-30 * 86400, ""), (0, "/nowhere")])
def test_a_restore_into_an_engine_that_is_refused_makes_no_table(harness, shift, base):
    written(harness)
    wanted, clock = RestoreWish(now(harness) + shift, base), harness.world.clock

    async def work(aws):
        async with connect(http_session=session_class(Engine())) as local:
            with pytest.raises(RestoreRefused):
                await restore_into_engine(harness.app, aws, local, wanted, clock)
            assert (await local.dynamodb.list_tables())["TableNames"] == []
            await restore_into_engine(harness.app, aws, local, RestoreWish(now(harness)), clock)

    harness.operate(work)


def test_open_shards_are_read_beside_each_other(harness_of):
    """At the end of each one it takes seconds to know that nothing comes any more."""
    shards = 8
    harness = harness_of(app_of(MemoryArchive()), shards=shards, settings=SELDOM, others=[TARGET])
    for number in range(40):
        write(harness, number, "one")
    harness.settle()
    harness.advance("1h")
    harness.stop()
    moment, was = now(harness), there(harness, "Notes")
    harness.advance("10s")
    for number in range(40):
        write(harness, number, "two")
    began = now(harness)
    restored(harness, moment)
    assert there(harness) == was
    each = 2 * 10 * 0.25  # both ways
    assert now(harness) - began < shards * each / 2


def test_what_is_written_for_an_item_is_behind_what_was_written_for_it_before(harness, monkeypatch):
    """Two shards are read beside each other, and an item may move from one to the other."""
    monkeypatch.setattr(restore, "_HELD_MAX", 1)
    log, schema = [], TableSchema("Notes", "PK", "SK", "S", "S", {})

    async def apply(actions):
        texts = [action.item["text"]["S"] for action in actions]
        log.append(f"begin {texts}")
        await anyio.sleep(1.0 if "old" in texts else 0.1)
        log.append(f"end {texts}")

    async def work(aws):
        past = SimpleNamespace(began=0.0, losses=[])
        work = restore._Restoring(past, schema, aws, schema, apply, RestoreWish(0.0), None)
        ref = item_ref(schema, {"PK": {"S": "a"}, "SK": {"S": "a"}})
        async with anyio.create_task_group() as group:
            for text in ("old", "new"):
                group.start_soon(work._write, ref, {"text": {"S": text}})
                await anyio.sleep(0.1)

    harness.operate(work)
    assert log == ["begin ['old']", "end ['old']", "begin ['new']", "end ['new']"]
