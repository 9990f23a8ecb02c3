"""The table store: order, indexes, undo and streams."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.local.ordering import LAST, SortedEntries
from streamkit.local.partitions import HASHES, Partitions, key_hash
from streamkit.local.tables import EngineTable, publish, undo


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=200),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_sorted_entries_equal_a_sorted_set_however_small_their_chunks_are(steps, low, high):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamkit.local.ordering._CHUNK", 2)
        entries, model = SortedEntries(), set()
        for adds, number in steps:
            if adds and number not in model:
                entries.add((number,))
                model.add(number)
            elif not adds and number in model:
                entries.remove((number,))
                model.remove(number)
        assert len(entries) == len(model)
        within = [(n,) for n in sorted(model) if low <= n < high]
        assert list(entries.ascending()) == [(n,) for n in sorted(model)]
        assert list(entries.ascending((low,), (high,))) == within
        assert list(entries.descending((low,), (high,))) == within[::-1]
        assert list(entries.descending()) == [(n,) for n in sorted(model, reverse=True)]
        after = [(n,) for n in sorted(model) if n > low]
        assert list(entries.ascending((low, LAST))) == after
        upto = [(n,) for n in sorted(model, reverse=True) if n <= high]
        assert list(entries.descending((), (high, LAST))) == upto


def test_a_hundred_thousand_entries_are_added_and_removed_in_any_order():
    numbers = list(range(100_000))
    random.Random(1).shuffle(numbers)
    entries = SortedEntries()
    for number in numbers:
        entries.add((number,))
    assert max(map(len, entries._chunks)) <= 1025
    for number in numbers[:-10]:
        entries.remove((number,))
    assert list(entries.ascending()) == [(n,) for n in sorted(numbers[-10:])]


def test_a_scan_goes_by_the_hash_of_the_partition_key_and_resumes_behind_any_place():
    rows = Partitions()
    places = [(f"p{n % 7}", (n,)) for n in range(40)]
    for place in places:
        rows.put(place, ({"at": place}, 1))
    order = [row[0]["at"] for row in rows.scan()]
    assert order == sorted(places, key=lambda place: (key_hash(place[0]), place))
    for number, place in enumerate(order):
        rows.remove(place)
        assert [row[0]["at"] for row in rows.scan(after=place)] == order[number + 1 :]
    assert list(rows.scan()) == []


def test_segments_of_hashes_have_every_row_once():
    rows = Partitions()
    for n in range(200):
        rows.put((f"p{n}", ()), ({"n": n}, 1))
    border = HASHES // 3
    parts = [list(rows.scan(0, border)), list(rows.scan(border, HASHES))]
    assert all(parts)
    assert parts[0] + parts[1] == list(rows.scan())


def contents(table: EngineTable):
    """All that is stored, in the table and in its indexes."""
    found = [("table", table.item_count, table.size_bytes, list(table.rows.scan()))]
    for index in table.indexes.values():
        found.append((index.name, index.item_count, index.size_bytes, list(index.rows.scan())))
    return found


def rebuilt(table: EngineTable, database) -> list:
    """The same from nothing but the items."""
    fresh = EngineTable(
        table.name,
        arn=table.arn,
        table_id=table.table_id,
        created=table.created,
        keys=table.keys,
        types=table.types,
        lag=database().engine.lag,
    )
    for index in table.indexes.values():
        fresh.add_index(
            type(index)(
                index.name,
                index.keys,
                table.keys,
                projection=index.projection,
                is_global=index.is_global,
            )
        )
    for item, _ in table.rows.scan():
        fresh.write(fresh.keys.key(item), None, item)
    return contents(fresh)


writes = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.integers(0, 3),
        st.one_of(
            st.none(),
            st.fixed_dictionaries(
                {},
                optional={
                    "g": st.sampled_from([{"S": "x"}, {"S": "y"}]),
                    "n": st.sampled_from([{"N": "1"}, {"N": "2"}, {"N": "-3.5"}]),
                    "l": st.sampled_from([{"S": "k"}, {"S": "m"}]),
                    "other": st.sampled_from([{"S": "q"}, {"SS": ["a", "b"]}]),
                },
            ),
        ),
    ),
    max_size=40,
)


def indexed(database, build):
    db = database()
    db.table(
        keys="pk:S sk:N",
        GlobalSecondaryIndexes=[
            build.gsi("all", "g", "n"),
            build.gsi("keys", "g", projection="KEYS_ONLY"),
            build.gsi("some", "n", "g", projection=["l"]),
        ],
        LocalSecondaryIndexes=[build.gsi("local", "pk", "l", projection="KEYS_ONLY")],
        types={"n": "N"},
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )
    return db, db.engine.tables["table"]


def carry_out(table, steps, **options):
    for pk, sk, attributes in steps:
        key = {"pk": {"S": pk}, "sk": {"N": str(sk)}}
        row = table.read(key)
        new = None if attributes is None else key | attributes
        table.write(key, None if row is None else row[0], new, **options)


@settings(deadline=None, max_examples=80)
@given(before=writes, after=writes)
def test_undoing_a_journal_leaves_the_table_and_every_index_as_before(
    database, build, before, after
):
    db, table = indexed(database, build)
    carry_out(table, before)
    state, records = contents(table), db.records()
    journal: list = []
    carry_out(table, after, journal=journal)
    assert db.records() == records
    undo(journal)
    assert contents(table) == state
    assert contents(table) == rebuilt(table, database)
    assert db.records() == records


@settings(deadline=None, max_examples=60)
@given(steps=writes)
def test_indexes_and_counts_are_what_the_items_make_them(database, build, steps):
    _, table = indexed(database, build)
    carry_out(table, steps)
    assert contents(table) == rebuilt(table, database)


@settings(deadline=None, max_examples=60)
@given(steps=writes)
def test_the_stream_tells_every_change_and_nothing_else(database, build, steps):
    db, table = indexed(database, build)
    carry_out(table, steps)
    state: dict = {}
    for record in db.records():
        change = record["dynamodb"]
        key = (change["Keys"]["pk"]["S"], change["Keys"]["sk"]["N"])
        assert change.get("OldImage") == state.get(key)
        assert change.get("OldImage") != change.get("NewImage")
        state[key] = change.get("NewImage")
    stored = [row[0] for row in table.rows.scan()]
    left = [image for image in state.values() if image is not None]
    assert in_order(left) == in_order(stored)


def in_order(items):
    """Return items so that equal ones are equal whatever the order of them and of attributes."""
    return sorted(repr(sorted(item.items())) for item in items)


def test_a_put_that_changes_nothing_leaves_no_record(db, build):
    db.table(StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"})
    one = build.item(pk="a", sk="b", n={"N": "1"}, s={"SS": ["x", "y"]}, m={"M": {"a": {"N": "1"}}})
    same = build.item(
        pk="a", sk="b", n={"N": "1.00"}, m={"M": {"a": {"N": "1E0"}}}, s={"SS": ["y", "x"]}
    )
    db("PutItem", TableName="table", Item=one)
    db("PutItem", TableName="table", Item=same)
    assert len(db.records()) == 1
    db("DeleteItem", TableName="table", Key=build.item(pk="none", sk="x"))
    assert len(db.records()) == 1


def test_a_stream_that_fails_takes_the_change_with_it(db, build, monkeypatch):
    db.table(StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"})
    table = db.engine.tables["table"]

    def fail(*_args, **_more):
        raise OSError("full")

    monkeypatch.setattr(table.stream, "append", fail)
    with pytest.raises(OSError, match="full"):
        db("PutItem", TableName="table", Item=build.item(pk="a", sk="b"))
    assert (table.item_count, table.size_bytes, list(table.rows.scan())) == (0, 0, [])


def test_publishing_a_change_without_a_stream_does_nothing(db, build):
    db.table()
    journal: list = []
    item = build.item(pk="a", sk="b")
    db.engine.tables["table"].write(item, None, item, journal=journal)
    publish(journal[0])
    assert db.records() == []


def test_global_indexes_trail_behind_by_the_lag_and_local_ones_do_not(db, build):
    db.table(
        GlobalSecondaryIndexes=[build.gsi("gsi", "v")],
        LocalSecondaryIndexes=[build.gsi("lsi", "pk", "v")],
    )
    db.engine.index_lag = 2.0
    assert db.engine.index_lag == 2.0
    db("PutItem", TableName="table", Item=build.item(pk="a", sk="1", v="x"))
    assert db.everything(IndexName="gsi") == []
    assert len(db.everything(IndexName="lsi")) == 1
    db.now += 1
    db("PutItem", TableName="table", Item=build.item(pk="a", sk="1", v="y"))
    db.now += 1
    assert [item["v"]["S"] for item in db.everything(IndexName="gsi")] == ["x"]
    db.engine.index_lag = 0.0
    assert [item["v"]["S"] for item in db.everything(IndexName="gsi")] == ["y"]


def test_a_write_after_the_lag_comes_behind_those_that_still_lag(db, build):
    db.table(GlobalSecondaryIndexes=[build.gsi("gsi", "v")])
    db.engine.index_lag = 2.0
    db("PutItem", TableName="table", Item=build.item(pk="a", sk="1", v="x"))
    db.engine.index_lag = 0.0
    db("PutItem", TableName="table", Item=build.item(pk="a", sk="1", v="y"))
    assert [item["v"]["S"] for item in db.everything(IndexName="gsi")] == ["y"]


def test_items_that_lack_a_part_of_the_key_are_not_in_the_index(db, build):
    db.table(GlobalSecondaryIndexes=[build.gsi("gsi", "v", "w")])
    db("PutItem", TableName="table", Item=build.item(pk="a", sk="1", v="x"))
    db("PutItem", TableName="table", Item=build.item(pk="a", sk="2", v="x", w="y"))
    assert [item["sk"]["S"] for item in db.everything(IndexName="gsi")] == ["2"]
