"""Chosen items: a list of keys in place of a scan, in a file or a bucket, whose lines are all read."""

import json
import random
from base64 import b64encode
from contextlib import asynccontextmanager, nullcontext
from typing import Annotated

import anyio
import pytest
from botocore.exceptions import ClientError

from streamkit import Aggregate, App, Count, Entity, Set
from streamkit.archive import contents
from streamkit.archive.contents import open_contents
from streamkit.core.table_shape import TableShape
from streamkit.core.tables import survey
from streamkit.errors import ConfigurationError
from streamkit.migrate.book.limits import Limit
from streamkit.migrate.book.refusals import AlreadyBegun
from streamkit.migrate.book.state import State, read_state
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.book.tallies import TallyBook
from streamkit.migrate.operate import commands, steps
from streamkit.migrate.plan.planning import plan_migration
from streamkit.migrate.run import chosen
from streamkit.migrate.run.chosen import require_source
from streamkit.migrate.run.keys import ChosenItems, KeyPages
from streamkit.migrate.run.live import LiveWork
from streamkit.migrate.run.sampling import Wanted
from streamkit.model.schema import TableSchema
from streamkit.progress.scan.pages import ScanPages
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import World
from streamkit.worker import one_by_one
from tests.exports import Body
from tests.unit.migrate.places import Place

SCHEMA = TableSchema("Shop", pk="PK", sk="SK", pk_type="S", sk_type="S", indexes={})
BINARY = TableSchema("Shop", pk="PK", sk="SK", pk_type="B", sk_type="N", indexes={})


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    label: str | None = None


class Shelf(Entity, pk="SHELF#{shelf}", sk="SHELF"):
    shelf: int


class Label(Entity, pk="LABEL#{number}", sk="LABEL"):
    number: int


def label(number: int) -> Set[Order]:
    return Set(label=f"{number}")


def unlabel(number: int) -> Set[Order]:
    return Set(label=None)


def labels(number: int) -> Label:
    return Label(number=number)


def any_key(_):
    return True


def line(number):
    return json.dumps({"PK": f"ORDER#{number}", "SK": "ORDER"})


def listed(path, *numbers):
    path.write_text("".join(f"{line(number)}\n" for number in numbers))
    return str(path)


async def check(source):
    """Read a list as `begin` does; return its tag."""
    async with open_contents(source) as opened:
        await KeyPages(keys=opened, items=ChosenItems(SCHEMA, None, any_key)).check(0)
        return opened.tag


# -- pages -----------------------------------------------------------------------------------------


async def read_all(source, total, limit, schema=SCHEMA):
    """Return the keys of all segments, page by page; the table holds whatever is asked for."""
    found = []

    async def there(key):
        return key

    async def visit(segment, reply):
        assert len(reply["Items"]) == reply["ScannedCount"] <= limit
        found.extend(reply["Items"])
        await segment.advance(reply.get("LastEvaluatedKey"))

    async with open_contents(source) as opened:
        pages = KeyPages(keys=opened, items=ChosenItems(schema, there, any_key))
        await ScanPages(pages.scan, "Shop", limit).visit_all(range(total), total, visit)
        await pages.close()
    return found


@pytest.mark.parametrize("chunk", [7, 64 * 1024])
@pytest.mark.parametrize("between", ["\n", "\n\n"])
@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
async def test_each_line_is_in_one_segment_however_the_list_is_cut(
    tmp_path, monkeypatch, chunk, between, end
):
    monkeypatch.setattr(contents, "_CHUNK", chunk)
    path = tmp_path / "keys.jsonl"
    path.write_text(between.join(line(10 ** (n % 9) + n) for n in range(20)) + end)
    expected = [f"ORDER#{10 ** (n % 9) + n}" for n in range(20)]
    for total in (1, 2, 3, 16, 1000):
        for limit in (1, 3, 100):
            found = await read_all(str(path), total, limit)
            assert sorted(one["PK"]["S"] for one in found) == sorted(expected), (total, limit)


async def test_a_line_is_a_key_with_or_without_types_or_an_item_of_an_export(tmp_path):
    path = tmp_path / "keys.jsonl"
    typed = {"PK": {"S": "ORDER#2"}, "SK": {"S": "ORDER"}}
    export = {"Item": {"PK": {"S": "ORDER#3"}, "SK": {"S": "ORDER"}, "data": {"B": "AAA="}}}
    path.write_text("\n".join([line(1), json.dumps(typed), json.dumps(export)]))
    found = await read_all(str(path), 1, 10)
    expected = [{"PK": {"S": f"ORDER#{n}"}, "SK": {"S": "ORDER"}} for n in (1, 2, 3)]
    assert sorted(found, key=str) == expected
    path.write_text(json.dumps({"PK": {"B": b64encode(b"\0x").decode()}, "SK": 1.50}))
    assert await read_all(str(path), 1, 10, BINARY) == [{"PK": {"B": b"\0x"}, "SK": {"N": "1.5"}}]


WRONG = [
    "no json",
    "[]",
    "1",
    '"PK"',
    '{"PK": "ORDER#1"}',
    '{"PK": "ORDER#1", "SK": 1}',
    '{"PK": "ORDER#1", "SK": ""}',
    '{"PK": "ORDER#1", "SK": null}',
    '{"PK": "ORDER#1", "SK": {"S": 1}}',
    '{"PK": "ORDER#1", "SK": {"S": "ORDER", "N": "1"}}',
    '{"Item": []}',
]


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_line_that_is_no_key_is_named(tmp_path, wrong):
    path = tmp_path / "keys.jsonl"
    path.write_text(f"{line(1)}\n\n{line(2)}\n{wrong}\n{line(3)}\n")
    said = 'keys.jsonl, line 4: it is no key of table Shop: a JSON object with "PK", "SK"'
    with pytest.raises(ConfigurationError, match=said):
        await check(str(path))


async def test_a_list_without_keys_or_without_lines_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "keys.jsonl"
    path.write_text("\n \n")
    with pytest.raises(ConfigurationError, match="it has no key"):
        await check(str(path))
    monkeypatch.setattr(contents, "_LINE_MAX", 100)
    path.write_bytes(b"\0" * 200)
    with pytest.raises(ConfigurationError, match="it does not consist of lines"):
        await check(str(path))
    with pytest.raises(ConfigurationError, match="nowhere: it cannot be read: No such file"):
        await check(str(tmp_path / "nowhere"))


# -- buckets ---------------------------------------------------------------------------------------


def refused(status, code):
    return ClientError(
        {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "S3"
    )


class Bucket:
    """An object of S3 that answers as S3 does."""

    def __init__(self, body):
        self.body, self.tag, self.asked = body, '"1"', []

    async def head_object(self, **name):
        if name != {"Bucket": "lists", "Key": "a/keys.jsonl"}:
            raise refused(404, "404")
        return {"ContentLength": len(self.body), "ETag": self.tag}

    async def get_object(self, *, Range, IfMatch, **name):
        if self.tag != IfMatch:
            raise refused(412, "PreconditionFailed")
        begin, end = map(int, Range.removeprefix("bytes=").split("-"))
        self.asked.append((begin, end))
        return {"Body": Body(self.body[begin : end + 1])}


@pytest.fixture
def bucket(monkeypatch):
    found = Bucket("".join(f"{line(n)}\n" for n in range(30)).encode())

    @asynccontextmanager
    async def client(service, *, read_seconds):
        assert service == "s3"
        yield found

    monkeypatch.setattr(contents, "open_client", client)
    return found


async def test_an_object_is_read_in_ranges(bucket, monkeypatch):
    monkeypatch.setattr(contents, "_CHUNK", 100)
    found = await read_all("s3://lists/a/keys.jsonl", 3, 4)
    assert sorted(one["PK"]["S"] for one in found) == sorted(f"ORDER#{n}" for n in range(30))
    assert all(end - begin < 100 for begin, end in bucket.asked)


async def test_an_object_that_has_changed_is_not_read(bucket):
    tag = await check("s3://lists/a/keys.jsonl")
    async with open_contents("s3://lists/a/keys.jsonl") as opened:
        assert opened.tag == tag
        bucket.tag = '"2"'
        with pytest.raises(ConfigurationError, match="it cannot be read: it has changed"):
            await opened.read(0, 10)
    with pytest.raises(ConfigurationError, match="it cannot be read: 404: there is no such"):
        async with open_contents("s3://lists/b"):
            pass


@pytest.mark.parametrize("source", ["s3://lists", "s3://lists/", "s3:///a", "s3://"])
async def test_a_list_in_s3_is_named_by_its_bucket_and_its_key(source):
    with pytest.raises(ConfigurationError, match="name an object, as in s3://BUCKET/KEY"):
        async with open_contents(source):
            pass


# -- migrations ------------------------------------------------------------------------------------


class ChosenPlace(Place):
    """A table with orders, and a migration of chosen ones."""

    async def run(self, source=None, **options):
        if source is not None:
            given = {"segments": 2, "keys_from": source, "clock": self.world.clock} | options
            await commands.begin(self.app, self.aws, self.migration, **given)
        return await self.runner().run()

    async def state(self):
        return await (await open_book(self.app, self.aws)).read("0001")

    def labelled(self):
        return sorted(int(i["number"]["N"]) for i in self.world.items("Shop") if "label" in i)

    def own(self, prefix):
        return [i for i in self.world.items("Shop") if i["PK"]["S"].startswith(prefix)]


def at(place_of_test, function=label, **options):
    app = App("shop", table="Shop", entities=[Shelf])
    app.migration("0001", options.pop("entity", Order), **options)(function)

    async def main():
        world = World.create(1)
        async with world.clients() as aws:
            await TableShape().create(aws.dynamodb, "Shop", (Order, Label), stream=True)
            tables = await survey(app, aws)
            place = ChosenPlace(world, aws, app, tables.table)
            await place.put(*(Order(number=n) for n in range(10)), Shelf(shelf=1))
            await anyio.sleep(3600)  # else these are changes that the migration follows
            return await place_of_test(place)

    return run_virtually(main, seed=1)


def test_only_the_items_of_the_list_are_changed_and_missing_ones_are_counted(tmp_path):
    source = listed(tmp_path / "keys.jsonl", 1, 3, 3, 77)

    async def test(place):
        state = await place.run(source)
        assert (state.phase, place.labelled()) == ("done", [1, 3])
        tally = await TallyBook((await open_book(place.app, place.aws)).store).read(
            "0001.1.scanning.0"
        )
        assert (tally.scanned, tally.missing) == (4, 1)
        assert (state.verified["scanned"], state.verified["missing"]) == (4, 1)
        verified = await place.verify()
        assert verified.ok
        assert (verified.looked_at, verified.matching, verified.missing) == (4, 3, 1)
        assert [entry.what for entry in state.commands] == [f"begin --keys-from {source}"]

    at(test)


def test_what_was_begun_is_not_begun_again_whatever_has_become_of_its_list(tmp_path):
    source = listed(tmp_path / "keys.jsonl", 1)

    async def test(place):
        for number in range(2):
            given = {"segments": 2, "keys_from": source, "clock": place.world.clock}
            with pytest.raises(AlreadyBegun) if number else nullcontext():
                await commands.begin(place.app, place.aws, place.migration, **given)
            (tmp_path / "keys.jsonl").unlink(missing_ok=True)

    at(test)


def test_a_command_does_not_wait_for_ever_for_an_s3_that_does_not_answer(bucket, monkeypatch):
    async def silent(**_):
        await anyio.sleep_forever()

    monkeypatch.setattr(bucket, "head_object", silent)
    source, said = "s3://lists/a/keys.jsonl", "keys.jsonl does not answer within 20 s: check"

    async def test(place):
        about = place.app, place.aws, place.migration
        for command in (plan_migration, commands.begin):
            with pytest.raises(ConfigurationError, match=said), anyio.fail_after(60):
                await command(*about, keys_from=source, clock=place.world.clock)
        assert (await place.state()).phase == "new"

    at(test)


@pytest.mark.parametrize("begun", ["index:ByState", ""])
def test_another_source_than_that_of_the_beginning_is_refused(begun):
    state = State("0001", phase="ready", keys_from=begun)
    require_source(state, begun)
    require_source(state, "")
    about = "the items of index:ByState" if begun else "all items"
    with pytest.raises(ConfigurationError, match=f"was begun for {about}, and is 'ready'"):
        require_source(state, "keys.jsonl")


def written_meanwhile(tmp_path, mode):
    source = listed(tmp_path / "keys.jsonl", 1)

    async def test(place):
        given = {"segments": 2, "keys_from": source, "clock": place.world.clock}
        await commands.begin(place.app, place.aws, place.migration, **given)
        await place.put(Order(number=50))
        state = await place.run()
        assert (state.phase, place.labelled()) == ("done", [1, 50])

    at(test, mode=mode)


@pytest.mark.parametrize("mode", ["in_place", "touch"])
def test_what_the_application_writes_meanwhile_is_changed_though_it_is_not_listed(tmp_path, mode):
    written_meanwhile(tmp_path, mode)


def test_a_change_at_which_processes_were_killed_is_followed_all_the_same(tmp_path, monkeypatch):
    """The second scan does not read it, because it is not listed."""
    monkeypatch.setattr(one_by_one, "_TAKES_MAX", 0)
    monkeypatch.setattr(one_by_one, "_TRIES_MAX", 0)
    written_meanwhile(tmp_path, "in_place")


def test_a_change_that_could_not_be_followed_for_a_while_is_waited_for(tmp_path, monkeypatch):
    take, clock = LiveWork.take, []

    async def refused(work, change):
        if clock[0].monotonic() < clock[1] + 60:
            raise TimeoutError
        await take(work, change)

    monkeypatch.setattr(LiveWork, "take", refused)
    source = listed(tmp_path / "keys.jsonl", 1)

    async def test(place):
        clock.extend((place.world.clock, place.world.clock.monotonic()))
        given = {"segments": 2, "keys_from": source, "clock": place.world.clock}
        await commands.begin(place.app, place.aws, place.migration, **given)
        await place.put(Order(number=50))
        state = await place.run()
        assert (state.phase, place.labelled()) == ("done", [1, 50])

    at(test)


def test_a_rollback_looks_for_changed_items_in_the_whole_table(tmp_path):
    source = listed(tmp_path / "keys.jsonl", 1, 2)

    async def test(place):
        await place.run(source)
        await place.put(Order(number=5, label="5"))  # as a change that was followed leaves it
        (tmp_path / "keys.jsonl").unlink()
        await steps.rollback(place.app, place.aws, "0001", clock=place.world.clock)
        state = await place.run()
        assert (state.phase, place.labelled()) == ("rolled back", [])

    at(test, reverse=unlabel)


def test_items_that_follow_are_made_for_the_listed_ones_alone_and_verified(tmp_path):
    source = listed(tmp_path / "keys.jsonl", 1, 2)

    async def test(place):
        assert (await place.run(source)).phase == "done"
        assert sorted(i["number"]["N"] for i in place.own("LABEL")) == ["1", "2"]
        assert (await place.verify()).ok
        for item in place.own("LABEL#1"):
            key = {name: item[name] for name in ("PK", "SK")}
            await place.aws.dynamodb.delete_item(TableName="Shop", Key=key)
        assert not (await place.verify()).ok
        assert (await place.verify(repair=True)).repaired == 1

    at(test, labels, mode="derive")


def test_a_list_that_has_changed_stops_the_migration_where_it_is(tmp_path):
    path = tmp_path / "keys.jsonl"
    source = listed(path, 1, 2)

    async def test(place):
        given = {"segments": 2, "keys_from": source, "clock": place.world.clock}
        await commands.begin(place.app, place.aws, place.migration, **given)
        listed(path, 3, 4)
        with pytest.raises(
            ConfigurationError, match="not the list with which the migration was begun"
        ):
            await place.run()
        listed(path, 1, 2)
        assert (await place.run()).phase == "done"
        assert place.labelled() == [1, 2]

    at(test)


def test_a_limit_of_read_units_holds_for_items_that_are_read_by_their_keys(tmp_path):
    source = listed(tmp_path / "keys.jsonl", *[1] * 100)

    async def test(place):
        clock = place.world.clock
        begun, limit = clock.time(), Limit(max_reads=1.0)
        state = await place.run(source, limit=limit)
        assert state.phase == "done"
        assert clock.time() - begun >= 180  # of two passes of 100 units, some were saved before

    at(test)


def test_a_release_that_knows_no_list_sees_another_definition(tmp_path):
    source = listed(tmp_path / "keys.jsonl", 1)

    async def test(place):
        state = await commands.begin(
            place.app, place.aws, place.migration, keys_from=source, clock=place.world.clock
        )
        stored = state.to_dict()
        assert stored["digest"] != place.migration.digest
        assert read_state(json.dumps(stored), state.version) == state
        del stored["keys_from"], stored["keys_tag"]  # as that release writes it, for a pause
        assert read_state(json.dumps(stored), state.version) == state
        assert (await place.run()).to_dict()["digest"] == place.migration.digest

    at(test)


def moved(order: Order) -> Label:
    return Label(number=order.number)


@pytest.mark.parametrize(
    ("function", "options", "what"), [(moved, {"mode": "rekey"}, "is about all items")]
)
def test_a_migration_of_all_items_takes_no_list(tmp_path, function, options, what):
    source = listed(tmp_path / "keys.jsonl", 1)

    async def test(place):
        with pytest.raises(ConfigurationError, match=what):
            await place.run(source)
        with pytest.raises(ConfigurationError, match=what):
            await plan_migration(place.app, place.aws, place.migration, keys_from=source)

    at(test, function, **options)


def test_an_aggregate_is_counted_as_a_whole_and_takes_no_list(tmp_path):
    class Orders(Aggregate[Order], pk="ORDERS", sk="ORDERS"):
        orders: Annotated[int, Count()] = 0

    source, app = listed(tmp_path / "keys.jsonl", 1), App("shop", table="Shop")
    app.aggregate(Orders)
    app.migration("0002", Orders, mode="aggregate")

    async def test(place):
        migration = app.migrations["0002"]
        with pytest.raises(ConfigurationError, match="mode='aggregate' is about all items"):
            await commands.begin(app, place.aws, migration, keys_from=source)

    at(test)


def test_a_long_list_is_cut_into_more_segments(tmp_path, monkeypatch):
    monkeypatch.setattr(chosen, "SEGMENT_BYTES", 10)
    source = listed(tmp_path / "keys.jsonl", *range(20))  # of 36 bytes each

    async def test(place):
        given = {"keys_from": source, "clock": place.world.clock}
        state = await commands.begin(place.app, place.aws, place.migration, **given)
        assert state.segments == 128

    at(test)


def test_a_line_that_is_no_key_is_refused_before_anything_is_begun(tmp_path):
    path = tmp_path / "keys.jsonl"
    path.write_text(f"{line(1)}\n{{}}\n")

    async def test(place):
        with pytest.raises(ConfigurationError, match="line 2: it is no key"):
            await place.run(str(path))
        assert (await place.state()).phase == "new"

    at(test)


def test_the_key_of_another_entitys_item_is_refused_by_its_line_and_left_out_of_an_export(tmp_path):
    path = tmp_path / "keys.jsonl"
    shelf = {"PK": {"S": "SHELF#1"}, "SK": {"S": "SHELF"}}

    async def test(place):
        path.write_text(f"{line(1)}\n{json.dumps(shelf)}\n{line(2)}\n")
        said = "keys.jsonl, line 2: it is the key of another entity's item"
        with pytest.raises(ConfigurationError, match=said):
            await place.run(str(path))
        with pytest.raises(ConfigurationError, match=said):
            await plan_migration(place.app, place.aws, place.migration, keys_from=str(path))
        assert (await place.state()).phase == "new"
        path.write_text(f"{line(1)}\n{json.dumps({'Item': shelf})}\n{line(2)}\n")
        assert (await place.run(str(path))).verified["scanned"] == 2
        assert place.labelled() == [1, 2]

    at(test)


def test_a_plan_is_about_the_items_of_the_list(tmp_path):
    source = listed(tmp_path / "keys.jsonl", 1, 2, 3, 77)

    async def test(place):
        await place.put(Order(number=3, label="3"))
        plan = await plan_migration(
            place.app,
            place.aws,
            place.migration,
            sample=Wanted(share=1.0),
            keys_from=source,
            clock=place.world.clock,
            rng=random.Random(1),
        )
        assert plan.ok
        assert (plan.looked_at, plan.items.value, plan.keys_from) == (4, 4, source)
        assert (plan.matching.value, plan.needing.value) == (3 / 4, 2 / 3)
        reads = {step.step: step.reads.value for step in plan.forecast.steps}
        assert reads == {"scan": 4, "rewrite": 0, "verify": 4}

    at(test)


async def test_a_long_list_lets_others_work_while_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(contents, "_CHUNK", 1)
    (tmp_path / "keys.jsonl").write_bytes(b"x" * 160)
    turns = 0

    async def beat():
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(beat)
        async with open_contents(str(tmp_path / "keys.jsonl")):
            assert turns >= 9
        group.cancel_scope.cancel()
