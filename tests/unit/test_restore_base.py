"""An export is the base of a restore if it is all of the table; anything else is refused."""

import gzip
import json
from types import SimpleNamespace

import pytest

from streamkit.model.schema import TableSchema
from streamkit.operate.restore.target import RestoreRefused, RestoreWish, check_wish
from tests.exports import export

SCHEMA = TableSchema("Notes", "PK", "SK", "S", "S", {})
BEGAN, MADE, NOW = 1_800_000_000.0, 1_800_000_060.0, 1_800_000_600.0
ITEMS = [{"PK": {"S": f"NOTE#{n}"}, "SK": {"S": "NOTE"}} for n in range(3)]


async def checked(folder):
    """Check the wish to restore a table above what is in a folder."""
    past = SimpleNamespace(began=BEGAN, clock=SimpleNamespace(time=lambda: NOW))
    return await check_wish(past, SCHEMA, SCHEMA, RestoreWish(NOW, str(folder)))


async def test_an_export_of_the_whole_table_is_a_base(tmp_path):
    export(tmp_path, "Notes", ITEMS, moment=MADE)
    base = await checked(tmp_path)
    assert (base.since, base.size) == (MADE, 3)


async def test_an_export_of_a_table_without_items_is_a_base(tmp_path):
    export(tmp_path, "Notes", [], moment=MADE)
    assert (await checked(tmp_path)).size == 0


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"outputFormat": "ION"}, "FULL_EXPORT as ION of table Notes"),
        ({"exportType": "INCREMENTAL_EXPORT"}, "INCREMENTAL_EXPORT as DYNAMODB_JSON"),
        ({"tableArn": "arn:aws:dynamodb:eu-central-1:0:table/Other"}, "of table Other"),
        ({"tableArn": None}, "no summary of an export"),
    ],
)
async def test_an_export_of_another_kind_or_table_is_refused(tmp_path, about, said):
    export(tmp_path, "Notes", ITEMS, moment=MADE, **about)
    with pytest.raises(RestoreRefused, match=said):
        await checked(tmp_path)


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ("manifest-summary.json", "manifest-summary.json: it cannot be read"),
        ("manifest-files.json", "manifest-files.json: it cannot be read"),
        ("data/*2.json.gz", "1 of 3 files are missing"),
        ("data/*", "3 of 3 files are missing"),
    ],
)
async def test_an_export_that_was_not_downloaded_as_a_whole_is_refused(tmp_path, lost, said):
    export(tmp_path, "Notes", ITEMS, moment=MADE)
    for file in tmp_path.glob(lost):
        file.unlink()
    with pytest.raises(RestoreRefused, match=said):
        await checked(tmp_path)


async def test_an_export_from_before_the_archive_is_refused(tmp_path):
    export(tmp_path, "Notes", ITEMS, moment=BEGAN - 1)
    with pytest.raises(RestoreRefused, match="older than the archive"):
        await checked(tmp_path)


def listed(folder, **other):
    """Change what the list of files says of each file."""
    path = folder / "manifest-files.json"
    lines = [json.loads(line) | other for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


async def test_a_file_with_other_bytes_than_were_exported_is_named_and_refused(tmp_path):
    """Also one that unzips to the same items, because nothing else says what was exported."""
    export(tmp_path, "Notes", ITEMS, moment=MADE)
    *_, file = sorted(tmp_path.glob("data/*"))
    file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes()), mtime=1))
    with pytest.raises(RestoreRefused, match=f"{file.name}: it is not as it was exported"):
        await checked(tmp_path)


@pytest.mark.parametrize(
    ("lines", "said"), [(1, "1 items, 2 in the manifest"), (3, "more items than the 2")]
)
async def test_a_file_with_more_or_fewer_items_is_named_and_refused_where_no_sum_is_listed(
    tmp_path, lines, said
):
    export(tmp_path, "Notes", ITEMS[:2], moment=MADE, files=1)
    listed(tmp_path, md5Checksum=None)
    await checked(tmp_path)
    *_, file = sorted(tmp_path.glob("data/*"))
    one = gzip.decompress(file.read_bytes()).splitlines(keepends=True)[0]
    file.write_bytes(gzip.compress(one * lines))
    with pytest.raises(RestoreRefused, match=f"{file.name}: {said}"):
        await checked(tmp_path)


async def test_a_list_of_files_that_was_cut_short_is_refused(tmp_path):
    export(tmp_path, "Notes", ITEMS, moment=MADE)
    path = tmp_path / "manifest-files.json"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(RestoreRefused, match=r"2 items in manifest-files\.json, 3 in manifest-s"):
        await checked(tmp_path)
