"""Global indexes whose keys are fields of an entity, up to four for each key."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, ClassVar

import msgspec
import pytest
from pydantic import Field

from streamkit import (
    Aggregate,
    App,
    Count,
    Entity,
    EpochSeconds,
    Index,
    Inserted,
    Put,
    Query,
    TableShape,
)
from streamkit.core.querying import query_request
from streamkit.errors import DeclarationError
from streamkit.kinds.preflight import findings
from streamkit.local.engine import Engine
from streamkit.model.schema import IndexSchema, TableSchema
from streamkit.operate.outline import outline_of


class Match(Entity, pk="MATCH#{match}", sk="MATCH#{match}"):
    match: str
    tournament: str
    region: Annotated[str | None, Field(alias="area")] = None
    round: int = 0
    bracket: str = ""
    at: EpochSeconds
    by_round: ClassVar = Index("ByRound", pk=("tournament", "region"), sk=("round", "bracket"))
    of_day: ClassVar = Index("OfDay", pk="DAY#{at:%Y-%m-%d}", sk=("tournament", "at"))


class Other(Entity, pk="OTHER#{other}", sk="OTHER#{other}"):
    other: str
    area: str


def described(*entities, **options):
    request = TableShape().create_table("matches", entities, **options)
    status, body = Engine().call("dynamodb", "CreateTable", request)
    assert status == 200, body
    return request, TableSchema.from_description(body["TableDescription"])


REQUEST, SCHEMA = described(Match)
DAY = datetime(2026, 5, 1, tzinfo=UTC)


def match(number, **fields):
    return Match(**({"match": str(number), "tournament": "W", "area": "EU", "at": DAY} | fields))


def condition(query):
    request = query_request(query, SCHEMA)
    text = request["KeyConditionExpression"]
    for placeholder, name in request["ExpressionAttributeNames"].items():
        text = text.replace(placeholder, name)
    for placeholder, value in request["ExpressionAttributeValues"].items():
        text = text.replace(placeholder, "".join(value.values()))
    return text


def test_a_table_is_made_with_the_attributes_that_store_the_fields_and_their_types():
    by_name = {index["IndexName"]: index for index in REQUEST["GlobalSecondaryIndexes"]}
    assert [tuple(part.values()) for part in by_name["ByRound"]["KeySchema"]] == [
        ("tournament", "HASH"),
        ("area", "HASH"),
        ("round", "RANGE"),
        ("bracket", "RANGE"),
    ]
    assert SCHEMA.indexes["ByRound"] == IndexSchema(
        "ByRound",
        (("tournament", "S"), ("area", "S")),
        (("round", "N"), ("bracket", "S")),
        "ALL",
        frozenset(),
        is_global=True,
    )
    assert SCHEMA.indexes["OfDay"].keys == (("OfDayPK", "S"), ("tournament", "S"), ("at", "N"))


def test_nothing_is_written_for_a_key_of_fields():
    item = match(1).attributes(SCHEMA)
    assert item.keys() == {
        "PK", "SK", "match", "tournament", "area", "round", "bracket", "at", "OfDayPK"
    }  # fmt: skip
    assert match(1).attributes(SCHEMA)["OfDayPK"] == {"S": "DAY#2026-05-01"}


def test_attributes_of_a_key_of_fields_are_not_streamkits_own():
    assert SCHEMA.reserved_attributes == {"PK", "SK", "OfDayPK"}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "tournament = W AND area = EU"),
        ({"round": 3}, "tournament = W AND area = EU AND round = 3"),
        (
            {"round": "3", "bracket": "UPPER"},
            "tournament = W AND area = EU AND round = 3 AND bracket = UPPER",
        ),
    ],
)
def test_a_query_takes_the_sort_fields_from_left_to_right(fields, expected):
    query = Match.query(index=Match.by_round, tournament="W", region="EU", **fields)
    assert condition(query) == expected


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ((2, 5), "round BETWEEN 2 AND 5"),
        ((2, None), "round >= 2"),
        ((None, "5"), "round <= 5"),
    ],
)
def test_the_next_sort_field_has_bounds(bounds, expected):
    query = Match.query(index=Match.by_round, tournament="W", region="EU")
    assert condition(query.between(*bounds)) == f"tournament = W AND area = EU AND {expected}"
    with pytest.raises(ValueError, match="no sort-key field is left open"):
        query.between(*bounds).between("a", "b")


def test_the_last_sort_field_has_bounds_behind_the_others():
    query = Match.query(index=Match.by_round, tournament="W", region="EU", round=3)
    expected = "tournament = W AND area = EU AND round = 3 AND bracket BETWEEN A AND U"
    assert condition(query.between("A", "U")) == expected
    whole = Match.query(index=Match.by_round, tournament="W", region="EU", round=3, bracket="U")
    with pytest.raises(ValueError, match="no sort-key field is left open"):
        whole.between("a", "b")


def test_a_template_and_fields_are_keys_of_one_index():
    query = Match.query(index=Match.of_day, at=DAY, tournament="W")
    stored = int(DAY.timestamp())
    assert condition(query) == f"OfDayPK = DAY#2026-05-01 AND tournament = W AND at = {stored}"
    without = Match.query(index=Match.of_day, at=DAY)
    # The field of the partition key is not taken for one of the sort key.
    assert condition(without) == "OfDayPK = DAY#2026-05-01"


def test_fields_and_a_template_are_keys_of_one_index():
    class Game(Entity, pk="GAME#{game}", sk="GAME#{game}"):
        game: str
        place: str
        level: int
        by_place: ClassVar = Index("ByPlace", pk=("place", "level"), sk="GAME#{game}")

    schema = described(Game)[1]
    query = Game.query(index=Game.by_place, place="x", level=2)
    request = query_request(query, schema)
    expected = "#k0 = :k0 AND #k1 = :k1 AND begins_with(#sk, :prefix)"
    assert request["KeyConditionExpression"] == expected
    assert request["ExpressionAttributeValues"][":k1"] == {"N": "2"}
    assert request["ExpressionAttributeNames"]["#sk"] == "ByPlaceSK"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"tournament": "W"}, "a query of Match needs region"),
        (
            {"tournament": "W", "region": "EU", "bracket": "U"},
            "a query of Match by bracket also needs round, which comes before in the sort key",
        ),
        (
            {"tournament": "W", "region": "EU", "at": DAY},
            "a query of Match does not take at",
        ),
        (
            {"tournament": "W", "region": None},
            "region is None, and an item without it is not in the index",
        ),
        ({"tournament": "", "region": "EU"}, "tournament is empty"),
        ({"tournament": "W", "region": "EU", "round": "x"}, r"1 field does not fit: round"),
    ],
)
def test_a_query_that_no_index_serves_is_refused(fields, expected):
    with pytest.raises(ValueError, match=expected):
        Match.query(index=Match.by_round, **fields)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"pk": ()}, "a key has 1 to 4 fields, and 0 are given"),
        ({"pk": tuple("abcde")}, "a key has 1 to 4 fields, and 5 are given"),
        ({"pk": ("A#{a}", "b")}, "'A#{a}' is not the name of a field"),
        ({"pk": ("a", "b"), "sk": ("b",)}, "a field is in its keys twice"),
        ({"pk": ("a",), "pk_attribute": "x"}, "leave out pk_attribute"),
        ({"pk": "A#{a}", "sk": ("b",), "sk_attribute": "x"}, "leave out pk_attribute"),
        ({"pk": ("a",), "when": bool}, "leave out when="),
        ({"pk": ("a",), "sk": ("b",), "when": bool}, "leave out when="),
    ],
)
def test_keys_that_cannot_be_are_refused_where_they_are_declared(keys, expected):
    with pytest.raises(DeclarationError, match=r"index X \(test_key_fields.py:\d+\)") as refusal:
        Index("X", **keys)
    assert expected in str(refusal.value)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (bool, r"key: a bool \(value\) cannot be part of a key"),
        (list[str], r"key: a list \(value\) cannot be part of a key"),
        (set[str], r"key: a set \(value\) cannot be part of a key"),
        (None, "key: Faulty has no field 'value'"),
    ],
)
def test_fields_that_are_no_keys_are_refused_with_the_class(kind, expected):
    annotations = {"a": str} if kind is None else {"a": str, "value": kind}
    body: dict[str, Any] = {
        "__annotations__": annotations,
        "__module__": __name__,
        "there": Index("X", pk=("value",)),
    }
    with pytest.raises(DeclarationError, match=expected):
        type("Faulty", (Entity,), body, pk="A#{a}")


def test_bytes_and_decimals_are_key_fields():
    class Blob(Entity, pk="BLOB#{name}", sk="BLOB#{name}"):
        name: str
        digest: bytes
        weight: Decimal
        by_digest: ClassVar = Index("ByDigest", pk=("digest",), sk=("weight",))

    schema = described(Blob)[1]
    assert schema.indexes["ByDigest"].keys == (("digest", "B"), ("weight", "N"))
    query = Blob.query(index=Blob.by_digest, digest=b"\x00\xff").between("0.5")
    assert query_request(query, schema)["ExpressionAttributeValues"] == {
        ":k0": {"B": b"\x00\xff"},
        ":low": {"N": "0.5"},
    }
    hash(query)


def with_index(*keys):
    index = IndexSchema("ByRound", *keys, "ALL", frozenset(), is_global=True)
    of_day = SCHEMA.indexes["OfDay"]
    indexes = {"ByRound": index, "OfDay": of_day}
    return TableSchema("matches", "PK", "SK", "S", "S", indexes, view_type="NEW_AND_OLD_IMAGES")


def s(*names):
    return tuple((name, "S") for name in names)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ((s("tournament"), s("round", "bracket")), "has the partition key tournament"),
        ((s("tournament", "area"), ()), "has no sort key"),
        (
            (s("area", "tournament"), (("round", "N"), *s("bracket"))),
            "ByRound has the key attributes area, tournament, and tournament, region of Match are",
        ),
        (
            (s("tournament", "area"), s("round", "bracket")),
            "round of ByRound is of type S, and Match stores round as N",
        ),
    ],
)
def test_an_index_with_other_keys_than_the_fields_is_found_at_start(harness_of, keys, expected):
    app = App("matches", table="matches")

    @app.on
    def nothing(change: Inserted[Match]) -> None: ...

    tables = harness_of(app).tables
    assert findings(app, tables) == []
    there = type(tables)(with_index(*keys), tables.control, tables.others)
    (found,) = (one for one in findings(app, there) if "ByRound" in one.text)
    assert found.severity == "error"
    assert expected in found.text


def test_an_app_queries_what_it_put(harness_of):
    app = App("matches", table="matches", entities=[Other])

    @app.on
    def nothing(change: Inserted[Match]) -> None: ...

    harness = harness_of(app)
    rounds = [(1, 2, "U"), (2, 10, "L"), (3, 2, "L"), (4, 9, "L")]
    for number, round_, bracket in rounds:
        harness.put(match(number, round=round_, bracket=bracket))
    harness.put(match(5, area=None, bracket="L"), match(6, tournament="WE", area="U", bracket="L"))
    # Another entity has an attribute of the index's, but not all of them.
    harness.put(Other(other="o", area="EU"))
    found = Match.query(index=Match.by_round, tournament="W", region="EU")
    assert [one.match for one in harness.query(found)] == ["3", "1", "4", "2"]
    assert [one.match for one in harness.query(found.between(9))] == ["4", "2"]
    assert [one.match for one in harness.query(found.reverse().limit(3))] == ["2", "4", "1"]
    narrow = Match.query(index=Match.by_round, tournament="W", region="EU", round=2)
    assert [one.match for one in harness.query(narrow)] == ["3", "1"]
    assert [one.match for one in harness.query(narrow.between("M"))] == ["1"]
    harness.update(Match.key(match="5"), region="EU")
    assert [one.match for one in harness.query(found)] == ["5", "3", "1", "4", "2"]


class Watch(Entity, pk="WATCH#{user}#{tournament}#{area}", sk="WATCH"):
    user: str
    tournament: str
    area: str
    since: int
    watchers: ClassVar = Index("Watchers", pk=("tournament", "area"), sk=("since", "user"))


class Told(Entity, pk="TOLD#{user}#{match}", sk="TOLD"):
    user: str
    match: str


def test_an_audience_of_several_pages_is_found_by_such_an_index(harness_of):
    app = App("matches", table="matches", entities=[Watch])

    def audience(change: Inserted[Match]) -> Query[Watch]:
        new = change.new
        found = Watch.query(index=Watch.watchers, tournament=new.tournament, area=new.region)
        return found.between(10)

    @app.fan_out(audience, rate=60)
    def tell(change: Inserted[Match], to: Watch) -> Put[Told]:
        return Put(Told(user=to.user, match=change.new.match))

    harness = harness_of(app)
    users = [f"u{number}" for number in range(260)]
    for number, user in enumerate(users):
        harness.put(Watch(user=user, tournament="W", area="EU", since=number % 130))
    harness.put(Watch(user="other", tournament="W", area="NA", since=50))
    harness.put(match(1, bracket="L"))
    harness.settle()
    told = {one.user for one in harness.scan(Told)}
    assert told == {user for number, user in enumerate(users) if number % 130 >= 10}


class Goal(Entity, pk="GOAL#{goal}", sk="GOAL"):
    goal: str
    league: str
    player: str


class Goals(Aggregate[Goal], pk="GOALS#{league}#{player}", sk="GOALS"):
    league: str
    player: str
    goals: Annotated[int, Count()] = 0
    best: ClassVar = Index("Best", pk=("league",), sk=("goals", "player"))


def test_the_counts_of_an_aggregate_are_ordered_by_an_index_that_nobody_writes(harness_of):
    app = App("goals", table="goals", entities=[Goals])
    app.aggregate(Goals)
    harness = harness_of(app)
    for number, player in enumerate("abbbccd"):
        harness.put(Goal(goal=str(number), league="L", player=player))
    harness.settle()
    best = Goals.query(index=Goals.best, league="L").reverse()
    assert [(one.player, one.goals) for one in harness.query(best.limit(2))] == [("b", 3), ("c", 2)]
    harness.put(*(Goal(goal=f"d{number}", league="L", player="d") for number in range(3)))
    harness.settle()
    assert [one.player for one in harness.query(best)] == ["d", "b", "c", "a"]
    assert [one.player for one in harness.query(best.between(low=3))] == ["d", "b"]


def test_an_app_is_outlined_with_the_fields_of_its_indexes():
    app = App("matches", table="matches")

    @app.on
    def nothing(change: Inserted[Match]) -> None: ...

    (outlined,) = (one for one in outline_of(app).entities if one.name == "Match")
    assert outlined.keys["ByRound"] == ("tournament, region", "round, bracket")
    assert outlined.keys["OfDay"] == ("DAY#{at:%Y-%m-%d}", "tournament, at")


def test_an_index_that_is_being_created_is_told_of_at_start(harness_of):
    app = App("matches", table="matches")

    @app.on
    def nothing(change: Inserted[Match]) -> None: ...

    tables = harness_of(app).tables
    index = replace(tables.table.indexes["ByRound"], is_active=False)
    created = replace(tables.table, indexes=tables.table.indexes | {"ByRound": index})
    (found,) = findings(app, msgspec.structs.replace(tables, table=created))
    assert found.severity == "warning"
    assert "ByRound of matches is being created" in found.text
