"""Chosen items: an export of the table, an index or a query says which, in place of a scan."""

import gzip
import json
import random
import re
import zlib
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import ClassVar

import anyio
import pytest
from botocore.exceptions import ClientError

from streamkit import App, Entity, Index, Set
from streamkit.archive import contents
from streamkit.core.table_shape import IndexShape, TableShape
from streamkit.core.tables import survey
from streamkit.errors import ConfigurationError
from streamkit.migrate.book.state import read_state
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.book.tallies import TallyBook
from streamkit.migrate.operate import commands
from streamkit.migrate.plan.planning import plan_migration
from streamkit.migrate.run import exports, keys
from streamkit.migrate.run.chosen import entry_pages
from streamkit.migrate.run.exports import open_export
from streamkit.migrate.run.keys import ChosenItems, KeyPages
from streamkit.migrate.run.passing import PassPace
from streamkit.migrate.run.sampling import Wanted
from streamkit.model.schema import IndexSchema, TableSchema
from streamkit.progress.actions import CONTROL_PREFIX
from streamkit.progress.scan.pages import ScanPages
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import World
from tests.exports import Body, export
from tests.unit.migrate.places import Place

HOUR = 3600.0
SCHEMA = TableSchema("Shop", pk="PK", sk="SK", pk_type="S", sk_type="S", indexes={})


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    user: str = "ann"
    state: str | None = None
    label: str | None = None
    by_state: ClassVar = Index(
        "ByState", pk="{state}", pk_attribute="state", sk="{number}", when=lambda order: order.state
    )
    by_both: ClassVar = Index("ByBoth", pk=("user", "state"), sk=("number",))


class Line(Entity, pk="LINES#{order}", sk="LINE#{number}"):
    order: int
    number: int
    label: str | None = None


class Shelf(Entity, pk="SHELF#{shelf}", sk="SHELF"):
    shelf: int


class Remark(Entity, pk="ORDER#{number}", sk="REMARK"):
    number: int


def label(number: int) -> Set[Order]:
    return Set(label=f"{number}")


def line_label(number: int) -> Set[Line]:
    return Set(label=f"{number}")


class SourcePlace(Place):
    """A table with orders, and a migration of those that a source says."""

    async def begin(self, source, **options):
        given = {"segments": 2, "keys_from": source, "clock": self.world.clock} | options
        await commands.begin(self.app, self.aws, self.migration, **given)

    async def run(self, source, **options):
        await self.begin(source, **options)
        return await self.runner().run()

    async def plan(self, source, share=1.0, **options):
        given = {"sample": Wanted(share=share), "clock": self.world.clock, "keys_from": source}
        given |= {"rng": random.Random(1)} | options
        return await plan_migration(self.app, self.aws, self.migration, **given)

    async def tally(self, phase="scanning"):
        store = (await open_book(self.app, self.aws)).store
        return await TallyBook(store).read(f"0001.1.{phase}.0")

    def labelled(self):
        return sorted(int(i["number"]["N"]) for i in self.items() if "label" in i)

    def items(self):
        found = self.world.items("Shop")
        return [i for i in found if not i["PK"]["S"].startswith(CONTROL_PREFIX)]

    def export(self, folder, **options):
        given = {"moment": self.world.clock.time()} | options
        return export(folder, "Shop", self.items(), **given)

    @property
    def scanned(self):
        """What passes have scanned so far: indexes by their names, None for the table."""
        return [c.payload.get("IndexName") for c in self.world.calls if "Segment" in c.payload]


def at(test, *items, function=label, entity=Order, hours=1.0, seed=1, options=None, **shape):
    app = App("shop", table="Shop", entities=[Shelf])
    app.migration("0001", entity, **options or {})(function)
    items = items or (*(Order(number=n) for n in range(10)), Shelf(shelf=1))

    async def main():
        world = World.create(seed)
        async with world.clients() as aws:
            shaped = TableShape(indexes={"ByState": IndexShape(project=())}, **shape)
            await shaped.create(aws.dynamodb, "Shop", (Order, Line), stream=True)
            place = SourcePlace(world, aws, app, (await survey(app, aws)).table)
            await place.put(*items)
            await anyio.sleep(hours * HOUR)  # else these are changes that the migration follows
            return await test(place)

    return run_virtually(main, seed=seed)


# -- an export, page by page -----------------------------------------------------------------------


def item(number, pk="ORDER"):
    return {"PK": {"S": f"{pk}#{number}"}, "SK": {"S": pk}, "data": {"B": b"\0"}}


async def there(key):
    return key


def is_order(found):
    return found["PK"]["S"].startswith("ORDER")


@asynccontextmanager
async def opened(source):
    keys = await open_export(source, SCHEMA)
    pages = KeyPages(keys=keys, items=ChosenItems(SCHEMA, there, is_order))
    yield pages
    await pages.close()


async def read_all(source, total, limit, again=lambda: False):
    """Return the keys of all segments; a process takes each page over from another if `again`."""
    found, pages, place = [], [], opened(source)

    async def scan(**request):
        nonlocal place
        if again():
            await place.__aexit__(None, None, None)
            place = opened(source)
            pages[-1] = await place.__aenter__()
        return await pages[-1].scan(**request)

    async def visit(segment, reply):
        assert len(reply["Items"]) == reply["ScannedCount"] <= limit
        found.extend(reply["Items"])
        await segment.advance(reply.get("LastEvaluatedKey"))

    pages.append(await place.__aenter__())
    await ScanPages(scan, "Shop", limit).visit_all(range(total), total, visit, at_once=1)
    await place.__aexit__(None, None, None)
    return sorted(int(one["PK"]["S"].partition("#")[2]) for one in found)


@pytest.mark.parametrize("chunk", [7, 64 * 1024])
@pytest.mark.parametrize("taken_over", [False, True])
@pytest.mark.parametrize("lines", [2, 10_000])
async def test_each_item_of_an_export_is_in_one_page_however_it_is_cut(
    tmp_path, monkeypatch, chunk, taken_over, lines
):
    monkeypatch.setattr(contents, "_CHUNK", chunk)
    monkeypatch.setattr(keys, "_PAGE_LINES", lines)
    items = [item(n) for n in range(20)] + [item(n, "SHELF") for n in range(5)]
    source = export(tmp_path, "Shop", items, moment=0)
    for total in (1, 2, 16):
        for limit in (1, 3, 100):
            found = await read_all(source, total, limit, lambda: taken_over)
            assert found == list(range(20)), (total, limit)


async def test_a_file_of_an_export_is_unpacked_once_while_a_process_reads_it(tmp_path, monkeypatch):
    unpacked, unzipped = [], exports.unzipped
    monkeypatch.setattr(exports, "unzipped", lambda file: unpacked.append(file) or unzipped(file))
    source = export(tmp_path, "Shop", [item(n) for n in range(20)], moment=0)
    await read_all(source, 2, 1)
    assert len(unpacked) == 4  # the second of three is in both segments


async def test_a_page_ends_although_all_of_its_lines_are_other_entities(tmp_path, monkeypatch):
    monkeypatch.setattr(keys, "_PAGE_LINES", 4)
    items = [item(n, "SHELF") for n in range(9)] + [item(1)]
    async with opened(export(tmp_path, "Shop", items, moment=0, files=1)) as pages:
        page = await pages.scan(Segment=0, TotalSegments=1, Limit=100)
        assert page == {"Items": [], "ScannedCount": 0, "LastEvaluatedKey": {"at": {"N": "4"}}}
    assert await read_all(tmp_path.joinpath("manifest-summary.json").as_posix(), 1, 100) == [1]


async def test_a_file_of_several_gzip_files_is_read_to_its_end(tmp_path):
    source = export(tmp_path, "Shop", [item(n) for n in range(4)], moment=0, files=1)
    (path,) = (p for p in (tmp_path / "data").iterdir() if p.name.startswith("0" * 25 + "1"))
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(b"".join(gzip.compress(line) for line in lines))
    assert await read_all(source, 1, 100) == [0, 1, 2, 3]


async def test_a_file_is_unpacked_in_small_parts_however_much_was_packed(tmp_path, monkeypatch):
    monkeypatch.setattr(contents, "_CHUNK", 1000)
    raw = b"a line, again and again\n" * 100_000
    (tmp_path / "packed.gz").write_bytes(gzip.compress(raw) + gzip.compress(b"the end"))
    async with contents.open_contents(str(tmp_path / "packed.gz")) as file:
        parts = [part async for part in contents.unzipped(file)]
    assert b"".join(parts) == raw + b"the end"
    assert max(map(len, parts)) <= 1000


class Bucket:
    """A bucket with the files of a directory; it lists two at a time, unless that is `refused`."""

    def __init__(self, folder, refused=""):
        self.folder, self.refused, self.read, self.listed = folder, refused, 0, 0

    async def list_objects_v2(self, *, Bucket, Prefix, ContinuationToken="0"):
        assert (Bucket, Prefix) == ("exports", "2026/01/data/")
        if self.refused:
            raise ClientError({"Error": {"Code": self.refused}}, "ListObjectsV2")
        self.listed += 1
        at = int(ContinuationToken)
        names = sorted(path.name for path in (self.folder / "data").iterdir())
        page = {"Contents": [{"Key": Prefix + name} for name in names[at : at + 2]]}
        more = {"IsTruncated": True, "NextContinuationToken": str(at + 2)}
        return page | (more if at + 2 < len(names) else {})

    def _read(self, Bucket, Key):
        self.read += 1
        assert (Bucket, Key[:8]) == ("exports", "2026/01/")
        return (self.folder / Key[8:]).read_bytes()

    async def head_object(self, **name):
        body = self._read(**name)
        return {"ContentLength": len(body), "ETag": f'"{zlib.crc32(body)}"'}

    async def get_object(self, *, Range, IfMatch, **name):
        begin, end = map(int, Range.removeprefix("bytes=").split("-"))
        assert IfMatch == (await self.head_object(**name))["ETag"]
        return {"Body": Body(self._read(**name)[begin : end + 1])}


def use(bucket, monkeypatch):
    @asynccontextmanager
    async def client(service, *, read_seconds):
        assert (service, read_seconds) == ("s3", 30)
        yield bucket

    monkeypatch.setattr(contents, "open_client", client)


async def test_an_export_in_a_bucket_is_read_where_it_is(tmp_path, monkeypatch):
    export(tmp_path, "Shop", [item(n) for n in range(20)], moment=0)
    use(Bucket(tmp_path), monkeypatch)
    monkeypatch.setattr(contents, "_CHUNK", 100)
    source = "s3://exports/2026/01/manifest-summary.json"
    assert await read_all(source, 2, 3) == list(range(20))


def cut(data):
    return data[:-9]


def shorter(data):
    return gzip.compress(gzip.decompress(data).partition(b"\n")[0])


def longer(data):
    return gzip.compress(gzip.decompress(data) * 2)


def keyless(data):
    return gzip.compress(gzip.decompress(data).replace(b'"PK"', b'"XX"', 1))


def changes(data):
    return gzip.compress(gzip.decompress(data).replace(b'"Item"', b'"NewImage"'))


DAMAGES = [
    (cut, "cannot be unpacked: its end is missing"),
    (zlib.compress, "cannot be unpacked: .*incorrect header"),
    (shorter, "json.gz: 1 items, 2 in the manifest"),
    (longer, "json.gz: more items than the 2 in the manifest"),
    (keyless, r"json.gz, line 1: it is no key of table Shop"),
    (changes, r"json.gz, line 1: it is no key of table Shop"),
]


@pytest.mark.parametrize(("damage", "what"), DAMAGES)
async def test_a_file_that_is_not_as_the_manifest_says_ends_the_scan(tmp_path, damage, what):
    source = export(tmp_path, "Shop", [item(n) for n in range(2)], moment=0, files=1)
    for path in (tmp_path / "data").iterdir():
        path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ConfigurationError, match=what):
        await read_all(source, 1, 100)


INCREMENTAL = {
    "exportTime": None,
    "exportFromTime": "2026-11-23T15:27:00.000Z",
    "exportToTime": "2026-11-24T15:27:00.000Z",
    "exportType": "INCREMENTAL_EXPORT",
    "outputView": "NEW_AND_OLD_IMAGES",
}
REFUSED = [
    (INCREMENTAL, "it is INCREMENTAL_EXPORT as DYNAMODB_JSON of table Shop: export"),
    (
        {"outputFormat": "ION"},
        "as ION of table Shop: export the whole of table Shop, as DYNAMODB_JSON",
    ),
    (
        {"tableArn": "arn:aws:dynamodb:r:1:table/Other"},
        "of table Other: export the whole of table Shop",
    ),
    ({"exportTime": "yesterday"}, "it is no summary of an export of a table"),
    ({"exportTime": None}, "it is no summary of an export of a table"),
    ({"tableArn": None}, "it is no summary of an export of a table"),
]


@pytest.mark.parametrize(("about", "what"), REFUSED)
async def test_an_export_of_another_kind_or_table_is_refused(tmp_path, about, what):
    with pytest.raises(ConfigurationError, match=what):
        async with opened(export(tmp_path, "Shop", [item(1)], moment=0, **about)):
            pass


async def test_an_export_without_items_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="it has no item"):
        async with opened(export(tmp_path, "Shop", [], moment=0)):
            pass


# -- a migration of an export ----------------------------------------------------------------------


def test_items_of_an_export_and_what_was_written_since_are_changed_without_a_scan(tmp_path):
    async def test(place):
        source = place.export(tmp_path)
        await anyio.sleep(5 * HOUR)
        await place.put(Order(number=50), Order(number=3, user="bob"))
        await place.aws.dynamodb.delete_item(
            TableName="Shop", Key=Order.key(number=4).wire(place.schema)
        )
        await anyio.sleep(5 * HOUR)  # the capture of another migration begins ten minutes ago
        state = await place.run(source)
        assert (state.phase, place.labelled()) == ("done", [0, 1, 2, 3, *range(5, 10), 50])
        assert state.verified["missing"] == 1
        tally = await place.tally()
        assert (tally.scanned, tally.missing) == (10, 1)
        verified = await place.verify()
        assert (verified.ok, verified.looked_at, verified.missing) == (True, 10, 1)
        sampled = await place.verify(sample=Wanted(share=0.5))
        assert 0 < sampled.looked_at < 10
        assert place.scanned == []

    at(test)


def test_an_export_whose_files_are_not_all_there_is_refused_with_their_names(tmp_path):
    async def test(place):
        source = place.export(tmp_path, files=6)
        await place.plan(source)
        gone = sorted((tmp_path / "data").iterdir())[1:6]
        for path in gone:
            path.unlink()
        for asked in (place.plan, place.begin):
            with pytest.raises(ConfigurationError) as raised:
                await asked(source)
            named = ", ".join(str(path) for path in gone[:3])
            assert f"5 of its 6 data files are not there: {named} and 2 more:" in str(raised.value)
        (tmp_path / "data" / f"{0:026d}.json.gz").unlink()  # without items: nothing reads it
        gone[0].parent.rename(tmp_path / "moved")
        with pytest.raises(ConfigurationError, match="6 of its 6 data files are not there"):
            await place.begin(source)
        assert (await (await open_book(place.app, place.aws)).read("0001")).phase == "new"

    at(test)


@pytest.mark.parametrize("refused", ["", "AccessDenied", "NoSuchBucket"])
async def test_the_files_of_an_export_in_a_bucket_are_listed_once_and_not_read(
    tmp_path, monkeypatch, refused
):
    """Who may not list the bucket learns of a missing file when it is to be read."""
    bucket = Bucket(tmp_path, refused)
    export(tmp_path, "Shop", [item(n) for n in range(20)], moment=0)
    use(bucket, monkeypatch)
    source = "s3://exports/2026/01/manifest-summary.json"
    keys = await open_export(source, SCHEMA)
    if refused == "NoSuchBucket":
        with pytest.raises(ConfigurationError, match=r"data/: it cannot be read: NoSuchBucket"):
            await keys.require_files()
        return
    await keys.require_files()
    (tmp_path / "data" / f"{3:026d}.json.gz").unlink()
    before = bucket.read
    if not refused:
        with pytest.raises(ConfigurationError, match=r"1 of its 3 data files .*0003\.json\.gz:"):
            await keys.require_files()
    assert (bucket.listed, bucket.read) == (0 if refused else 4, before)


def test_an_export_is_refused_once_the_stream_has_forgotten_what_came_after_it(tmp_path):
    async def test(place):
        source = place.export(tmp_path)
        await anyio.sleep(23.5 * HOUR)
        for asked in (place.plan, place.begin):
            with pytest.raises(ConfigurationError, match="keeps what was written in the last 24"):
                await asked(source)

    at(test)


def test_an_export_from_before_the_stream_was_enabled_is_refused(tmp_path):
    async def test(place):
        source = place.export(tmp_path, moment=place.world.clock.time() - 2 * HOUR)
        with pytest.raises(ConfigurationError, match="export the table again, and begin with that"):
            await place.begin(source)

    at(test)


def test_an_export_of_a_table_of_the_same_name_in_another_account_is_refused(tmp_path):
    async def test(place):
        there = "arn:aws:dynamodb:us-east-1:999999999999:table/Shop"
        source = place.export(tmp_path, tableArn=there)
        for asked in (place.plan, place.begin):
            with pytest.raises(ConfigurationError, match=f"it is an export of {there}, and"):
                await asked(source)

    at(test)


def test_a_migration_that_nobody_joins_until_the_export_is_too_old_does_not_scan(tmp_path):
    async def test(place):
        source = place.export(tmp_path)
        await place.put(Order(number=50))
        await place.begin(source)
        await anyio.sleep(24 * HOUR)
        with pytest.raises(ConfigurationError, match="export the table again"):
            await place.runner().run()
        assert place.scanned == []
        assert set(place.labelled()) <= {50}  # it is followed, as far as the stream goes

    at(test, seed=4)  # by chance: with others some of the export is read before the loss is seen


def test_a_release_that_knows_no_export_leaves_the_moment_that_it_shows(tmp_path):
    async def test(place):
        await place.begin(place.export(tmp_path))
        state = await (await open_book(place.app, place.aws)).read("0001")
        stored = state.to_dict()
        for name in ("keys_from", "keys_tag", "since"):  # as that release writes it, for a pause
            del stored[name]
        assert state.since > 0
        assert read_state(json.dumps(stored), state.version) == state

    at(test)


def test_an_export_of_a_table_without_a_stream_is_refused_when_a_process_joins(tmp_path):
    async def test(place):
        source = place.export(tmp_path)
        stream = {"StreamEnabled": False}
        await place.aws.dynamodb.update_table(TableName="Shop", StreamSpecification=stream)
        await anyio.sleep(60)
        await place.begin(source)
        with pytest.raises(ConfigurationError, match="stream"):
            await place.runner().run()
        stream = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
        await place.aws.dynamodb.update_table(TableName="Shop", StreamSpecification=stream)
        await anyio.sleep(60)
        with pytest.raises(ConfigurationError, match="export the table again"):
            await place.runner().run()

    at(test)


def test_an_export_that_was_replaced_stops_the_migration(tmp_path):
    async def test(place):
        await place.begin(place.export(tmp_path))
        place.export(tmp_path, files=2)
        with pytest.raises(ConfigurationError, match="not the list with which the migration was"):
            await place.runner().run()

    at(test)


def test_a_plan_of_an_export_is_computed_from_some_ranges_of_its_lines(tmp_path):
    async def test(place):
        source = place.export(tmp_path)
        whole = await place.plan(source)
        assert (whole.looked_at, whole.items.value, whole.sampled) == (200, 200, 1)
        assert (whole.matching.value, whole.needing.value) == (1, 1)
        part = await place.plan(source, sample=Wanted(items=50))
        assert (part.looked_at, part.items.value) == (50, 200)
        reads = {step.step: step.reads.value for step in part.forecast.steps}
        assert reads == {"scan": 200, "rewrite": 0, "verify": 200}

    at(test, *(Order(number=n) for n in range(200)))


# -- indexes and queries ---------------------------------------------------------------------------


def orders(*states):
    return [Order(number=n, state=state) for n, state in enumerate(states)]


def test_the_items_of_a_sparse_index_are_changed_and_no_others():
    async def test(place):
        state = await place.run("index:ByState")
        assert (state.phase, place.labelled()) == ("done", [1, 3])
        assert set(place.scanned) == {"ByState"}
        assert ((await place.tally()).scanned, state.verified["scanned"]) == (2, 2)
        verified = await place.verify()
        assert (verified.ok, verified.looked_at) == (True, 2)
        assert (await place.verify(sample=Wanted(share=0.5))).ok

    at(test, *orders(None, "OPEN", None, "PAID", None))


def test_what_a_lagging_index_does_not_show_is_changed_because_it_was_written_lately():
    async def test(place):
        place.world.engine.index_lag = 540.0
        await place.put(Order(number=1, state="OPEN"), Order(number=0, state="OPEN"))
        await anyio.sleep(60)
        await place.begin("index:ByState")
        state = await place.runner().run()
        assert (state.phase, place.labelled()) == ("done", [0, 1, 3])

    at(test, *orders(None, None, None, "PAID"))


def test_an_unlisted_item_that_is_written_while_the_listed_ones_are_verified_is_changed():
    async def test(place):
        await place.begin("index:ByState")
        book = await open_book(place.app, place.aws)

        async def write_late():
            while (phase := (await book.read("0001")).phase) not in ("verifying", "done"):
                await anyio.sleep(0.001)
            assert phase == "verifying"
            await place.put(Order(number=0, user="bob"))

        async with anyio.create_task_group() as group:
            group.start_soon(write_late)
            state = await place.runner().run()
        assert (state.phase, place.labelled()) == ("done", [0, 1, 3])

    at(test, *orders(None, "OPEN", None, "PAID"))


def test_an_entry_that_an_index_shows_too_long_does_no_harm():
    async def test(place):
        place.world.engine.index_lag = HOUR
        await place.aws.dynamodb.delete_item(
            TableName="Shop", Key=Order.key(number=1).wire(place.schema)
        )
        state = await place.run("index:ByState")
        assert (state.phase, place.labelled()) == ("done", [0])
        tally = await place.tally()
        assert (tally.scanned, tally.missing) == (2, 1)

    at(test, *orders("OPEN", "OPEN"))


QUERIES = [
    ('index:ByState:{"state": "OPEN"}', [1, 4]),
    ('index:ByBoth:{"user": "ann", "state": "PAID"}', [3]),
    ('index:ByState:{"state": {"S": "PAID"}}', [3]),
    ('table:{"PK": "ORDER#2"}', [2]),
]


@pytest.mark.parametrize(("source", "expected"), QUERIES)
def test_a_query_of_one_partition_says_which_items_are_changed(source, expected):
    async def test(place):
        state = await place.run(source, segments=None)
        assert (state.phase, place.labelled()) == ("done", expected)
        assert ((await place.tally()).scanned, state.verified["scanned"]) == (len(expected),) * 2
        verified = await place.verify(sample=Wanted(share=0.05))  # a query has no segments
        assert (verified.looked_at, verified.sampled) == (len(expected), 1)
        assert ((await place.tally()).missing, verified.missing) == (0, 0)

    beside = Remark(number=2)  # of another entity, in one of the partitions
    at(test, *orders(None, "OPEN", None, "PAID", "OPEN"), beside)


def test_the_pages_of_a_partition_are_read_one_after_the_other():
    async def test(place):
        await place.begin('table:{"PK": "LINES#7"}')
        state = await place.runner(pace=PassPace(page=2)).run()
        assert (state.phase, place.labelled()) == ("done", list(range(9)))
        conditions = [c.payload for c in place.world.calls if c.operation == "Query"]
        assert sum(":0" in c["ExpressionAttributeValues"] for c in conditions) == 2 * 5
        assert (await place.tally()).scanned == 9

    lines = [Line(order=7, number=n) for n in range(9)] + [Line(order=8, number=100)]
    at(test, *lines, function=line_label, entity=Line)


WRONG = [
    (
        "index:Nowhere",
        "index:Nowhere: table Shop has no such index that can be read; it has ByBoth, ByState",
    ),
    ('index:Nowhere:{"state": "OPEN"}', "has no such index that can be read"),
    (
        'index:ByState:{"other": "OPEN"}',
        """has to end with the whole partition key, as in {"state": {"S": "…"}}""",
    ),
    (
        'index:ByState:{"state": "OPEN", "number": 1}',
        """partition key, as in {"state": {"S": "…"}}""",
    ),
    ('index:ByState:{"state": 1}', """partition key, as in {"state": {"S": "…"}}"""),
    ('index:ByState:{"state": ""}', """partition key, as in {"state": {"S": "…"}}"""),
    ('index:ByBoth:{"user": "ann"}', """as in {"user": {"S": "…"}, "state": {"S": "…"}}"""),
    ("table:ORDER#1", """has to end with the whole partition key, as in {"PK": {"S": "…"}}"""),
    ("table:{", """as in {"PK": {"S": "…"}}"""),
]


@pytest.mark.parametrize(("source", "what"), WRONG)
def test_a_source_that_cannot_be_read_is_refused_before_anything_is_begun(source, what):
    async def test(place):
        for asked in (place.plan, place.begin):
            with pytest.raises(ConfigurationError, match=re.escape(what)):
                await asked(source)
        assert (await (await open_book(place.app, place.aws)).read("0001")).phase == "new"

    at(test)


@pytest.mark.parametrize("source", ["index:ByState", 'index:ByState:{"state": "OPEN"}'])
def test_an_index_that_is_being_created_is_no_source(source):
    index = IndexSchema("ByState", (("state", "S"),), (), "ALL", frozenset(), True, is_active=False)
    items = ChosenItems(replace(SCHEMA, indexes={"ByState": index}), None, None)
    with pytest.raises(ConfigurationError, match="no such index that can be read; it has none"):
        entry_pages(source, items, None)


def test_a_migration_of_an_indexs_items_takes_no_other_source():
    async def test(place):
        for asked in (place.plan, place.begin):
            with pytest.raises(ConfigurationError, match="reads index ByState: leave --keys-from"):
                await asked("index:ByBoth")

    at(test, options={"mode": "touch", "index": Order.by_state})


def test_a_plan_of_an_index_counts_its_entries_and_the_items_that_are_read_by_their_keys():
    async def test(place):
        for source, units in (("index:ByState", 2.0), ('index:ByState:{"state": "OPEN"}', 1.0)):
            plan = await place.plan(source)
            assert (plan.items.value, plan.looked_at, plan.needing.value) == (units, units, 1)
            reads = {step.step: step.reads.value for step in plan.forecast.steps}
            entries = reads["scan"] - units
            assert 0 < entries < 0.05 * units  # keys alone, eventually consistent
        whole = await place.plan('table:{"PK": "ORDER#1"}')
        assert (whole.looked_at, whole.items.value) == (1, 1)

    at(test, *orders(None, "OPEN", None, "PAID", None))
