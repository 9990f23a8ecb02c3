"""Documents, one statement of its README at a time, and under traffic."""

from datetime import UTC, datetime, timedelta

import pytest

from handlers.documents.entities import Document, Part, Settings, SettingsCopy, Version
from handlers.documents.handlers import COPIES, SHAPE, app
from handlers.documents.traffic import Traffic
from streamkit.testing import trial
from tests.seeds import seeds

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
KEY = Document.key(document_id="D1")


def a_document(**fields):
    return Document(
        **{"document_id": "D1", "title": "Kites", "author": "ann", "at": NOON, **fields}
    )


def a_part(name, number):
    return Part(document_id="D1", name=name, number=number, text="Once", author="ann")


@pytest.fixture
def desk(harness_of):
    return harness_of(app, shape=SHAPE)


def flip(desk, minutes=1, author="bob", **fields):
    """Set fields of the document, and no others, as the application does."""
    at = NOON + timedelta(minutes=minutes)
    fields = Document.set_attributes(desk.tables.table, {**fields, "author": author, "at": at})
    desk._run(
        desk._aws.dynamodb.update_item(
            TableName=app.table,
            Key=KEY.wire(desk.tables.table),
            UpdateExpression="SET " + ", ".join(f"#{n} = :{n}" for n in fields),
            ExpressionAttributeNames={f"#{n}": n for n in fields},
            ExpressionAttributeValues={f":{n}": value for n, value in fields.items()},
        )
    )


def versions_of(desk):
    return sorted(desk.scan(Version), key=lambda version: version.number)


@pytest.mark.parametrize("seed", seeds(4))
def test_every_change_is_one_version_and_nothing_is_missing_or_doubled(seed):
    ran = trial(app, Traffic(), shape=SHAPE, seed=seed)
    compared = {comparison.title: comparison.compared for comparison in ran.comparisons}
    assert all(compared.values())
    assert compared["parts"] > 50
    assert compared["versions"] > 9


def test_a_flip_leaves_a_version_with_author_and_time_and_its_number_on_the_document(desk):
    desk.put(a_document())
    desk.settle()
    desk.put(a_part("INTRO", 1), a_part("SUMMARY", 1))
    flip(desk, parts={"INTRO": 1, "SUMMARY": 1})
    desk.settle()
    assert versions_of(desk) == [
        Version(document_id="D1", number=1, title="Kites", author="ann", at=NOON),
        Version(
            document_id="D1",
            number=2,
            title="Kites",
            author="bob",
            at=NOON + timedelta(minutes=1),
            parts={"INTRO": 1, "SUMMARY": 1},
        ),
    ]
    assert desk.get(KEY).version == 2


def test_parts_that_are_staged_change_nothing_until_the_flip(desk):
    desk.put(a_document())
    desk.put(a_part("INTRO", 1), a_part("INTRO", 2), a_part("SUMMARY", 1))
    desk.settle()
    assert desk.get(KEY).part_keys == []
    flip(desk, parts={"INTRO": 2, "SUMMARY": 1})
    desk.settle()
    assert [key.sk for key in desk.get(KEY).part_keys] == ["INTRO_V2", "SUMMARY_V1"]
    assert [version.number for version in versions_of(desk)] == [1, 2]


def test_flips_between_two_looks_of_the_worker_are_a_version_each(desk):
    desk.put(a_document())
    for number in range(1, 15):
        flip(desk, number, parts={"INTRO": number})
    desk.settle()
    parts = [version.parts.get("INTRO") for version in versions_of(desk)]
    assert parts == [None, *range(1, 15)]
    assert desk.get(KEY).version == 15
    queries = [call for call in desk.world.calls if call.operation == "Query"]
    assert not any(KEY.pk in str(query.payload) for query in queries)  # the number says it all


def test_what_changes_neither_title_nor_parts_is_no_version(desk):
    desk.put(a_document())
    desk.settle()
    flip(desk, author="zoe")
    desk.settle()
    assert [version.author for version in versions_of(desk)] == ["ann"]


def test_the_history_of_a_document_that_is_deleted_and_comes_back_goes_on(desk):
    desk.put(a_document())
    for number in range(1, 11):
        flip(desk, number, parts={"VIEWS": number})
    desk.put(a_part("VIEWS", 40))
    desk.settle()
    desk.delete(KEY)
    desk.settle()
    assert desk.get(KEY) is None
    desk.put(a_document(title="Kites again"))
    desk.settle()
    found = versions_of(desk)
    assert [version.number for version in found] == list(range(1, 14))
    assert [version.title for version in found[-3:]] == ["Kites", None, "Kites again"]
    assert desk.get(KEY).version == 13


def test_copies_of_the_settings_follow_the_master_and_go_with_it(desk):
    for values in ({"colour": "blue"}, {"colour": "red"}):
        desk.put(Settings(values=values))
        desk.settle()
        copies = desk.scan(SettingsCopy)
        assert len(copies) == COPIES
        assert all(copy.values == values for copy in copies)
    assert SettingsCopy.key(number=3).pk == "GLOBAL_SETTINGS_03"
    desk.delete(Settings.key())
    desk.settle()
    assert desk.scan(SettingsCopy) == []
