"""An export is the base of a restore if it is all of the table; anything else is refused."""

from types import SimpleNamespace

import pytest

from streamkit.model.schema import TableSchema
from streamkit.operate.restore_target import RestoreRefused, RestoreWish, check_wish
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
