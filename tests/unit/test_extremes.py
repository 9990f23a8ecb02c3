"""Extremes: which entries stand after one item offers something else, and what is refused."""

import itertools
import random
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Annotated, ClassVar

import pydantic
import pytest

from streamkit import (
    Aggregate,
    App,
    Count,
    DeclarationError,
    Entity,
    First,
    Index,
    Key,
    Last,
    Max,
    Min,
    Top,
)
from streamkit.kinds.aggregate.entries import (
    RankedEntry,
    Ranking,
    rank_of,
    read_entries,
    source_of_entry,
    stored_ranks,
)
from streamkit.kinds.aggregate.extremes import entries_of, extremes_of, stored_entries
from streamkit.model.schema import TableSchema

SCHEMA = TableSchema(name="Logs", pk="PK", pk_type="S", sk="SK", sk_type="S", indexes={})


class Level(Enum):
    LOW = 1


class Log(Entity, pk="DEVICE#{device}", sk="LOG#{number}"):
    by_state: ClassVar = Index("GSI1", pk="STATE#{state}", sk="LOG#{number}")
    device: str
    number: int
    at: datetime | None = None
    state: str | None = None
    tags: set[str] = set()
    seen: pydantic.AwareDatetime | None = None
    read: bool = False
    level: Level = Level.LOW


class Brief(pydantic.BaseModel):
    number: int
    state: str | None


class LastSeen(Aggregate[Log], pk="SEEN#{device}", sk="SEEN"):
    device: str
    logs: Annotated[int, Count()] = 0
    first: Annotated[datetime | None, Min("at")] = None
    last: Annotated[datetime | None, Max("at", when=lambda log: log.state != "off")] = None
    first_state: Annotated[str | None, First("state", by="at")] = None
    last_state: Annotated[str | None, Last("state", by="at")] = None
    latest: Annotated[
        tuple[Brief, ...],
        Top(2, by="number", of=lambda log: Brief(number=log.number, state=log.state)),
    ] = ()
    lowest: Annotated[tuple[int, ...], Top(2, by="number", lowest=True)] = ()

    @classmethod
    def group(cls, log: Log) -> Key["LastSeen"]:
        return cls.key(device=log.device)

    @classmethod
    def members(cls, device: str):
        return Log.query(device=device)


def entry(rank, name):
    return RankedEntry(Decimal(rank), (name, ""), {"N": str(rank)})


# -- the entries -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("highest", [False, True])
def test_steps_answer_what_sorting_the_group_would_or_ask_for_it(size, highest):
    ranking, rng, asked = Ranking(size, highest), random.Random(5), 0
    group, entries = {}, []
    for _ in range(2000):
        name = rng.choice("abcde")
        offered = rng.choice([None, *range(6)])
        group[name] = None if offered is None else entry(offered, name)
        truth = ranking.best(e for e in group.values() if e is not None)
        stepped = ranking.step(entries, (name, ""), group[name])
        asked += stepped is None
        assert stepped in (None, truth)
        entries = truth
    assert 0 < asked < 1000


@pytest.mark.parametrize(
    ("before", "name", "offered", "known"),
    [
        ([3, 2], "a", 4, True),  # the best one gets better
        ([3, 2], "b", 4, True),
        ([5, 2], "a", 3, True),  # worse, but still before another that is kept
        ([3, 2], "b", 1, False),
        ([3, 2], "a", None, False),
        ([3, 2], "c", None, True),  # it was not among them
        ([3], "a", None, True),  # there was room, so everybody was
        ([3], "a", 1, True),
    ],
)
def test_the_group_is_read_only_if_one_of_the_best_has_left(before, name, offered, known):
    entries = [entry(rank, source) for rank, source in zip(before, "ab", strict=False)]
    new = None if offered is None else entry(offered, name)
    assert (Ranking(2, highest=True).step(entries, (name, ""), new) is not None) == known


def test_equal_values_are_two_entries():
    ranking = Ranking(2, highest=False)
    both = ranking.step([entry(1, "a")], ("b", ""), entry(1, "b"))
    assert [e.source[0] for e in both] == ["a", "b"]
    assert ranking.step([entry(1, "a")], ("a", ""), entry(1, "a")) == [entry(1, "a")]


def test_of_equal_ranks_the_larger_key_is_the_last_and_the_smaller_the_first():
    two = [entry(1, "a"), entry(1, "b")]
    for order in itertools.permutations(two):
        assert Ranking(1, highest=True).best(order) == [two[1]]
        assert Ranking(1, highest=False).best(order) == [two[0]]


class State(StrEnum):
    ON = "on"


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (9, 10),
        (Decimal("-2.5"), 1),
        (0.1, 0.25),
        ("a", "b"),
        (State.ON, "onset"),
        (date(2026, 9, 1), date(2026, 10, 1)),
        (datetime(2026, 1, 1, 0, 0, 0), datetime(2026, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001
        (
            datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=3))),
            datetime(2026, 1, 1, 0, tzinfo=UTC),
        ),
    ],
)
def test_ranks_are_ordered_as_their_values_are(low, high):
    assert rank_of(low) < rank_of(high)


@pytest.mark.parametrize("value", [True, b"x", (1, 2), [1]])
def test_what_has_no_order_is_refused(value):
    with pytest.raises(TypeError, match="no order"):
        rank_of(value)


def test_numbers_of_more_than_38_digits_are_not_rounded():
    with pytest.raises(ArithmeticError):
        rank_of(10**40 + 1)


def test_entries_survive_being_stored():
    entries = [
        RankedEntry("2026-01-01", ("a", "b"), {"S": "x"}),
        RankedEntry("2025", ("c", ""), {"S": "y"}),
    ]
    item = {"top": {"L": [e.value for e in entries]}, "top_entries": stored_ranks(entries)}
    assert read_entries(item, "top_entries", "top", several=True) == entries
    shown_nothing = RankedEntry(Decimal("1.5"), ("a", ""), None)
    item = {"last_entries": stored_ranks([shown_nothing])}
    assert read_entries(item, "last_entries", "last", several=False) == [shown_nothing]
    assert read_entries({}, "last_entries", "last", several=False) == []


def test_values_that_somebody_else_wrote_are_found_out():
    item = {"top": {"L": []}, "top_entries": stored_ranks([entry(1, "a")])}
    with pytest.raises(ValueError, match="not written by streamkit"):
        read_entries(item, "top_entries", "top", several=True)


# -- what items offer ------------------------------------------------------------------------------


def test_an_item_offers_what_its_fields_say_in_the_types_of_the_aggregate():
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    found = entries_of(LastSeen, Log(device="d", number=7, at=at, state="on"), SCHEMA)
    assert {name: e.value for name, e in found.items()} == {
        "first": {"S": "2026-03-01T12:00:00Z"},
        "last": {"S": "2026-03-01T12:00:00Z"},
        "first_state": {"S": "on"},
        "last_state": {"S": "on"},
        "latest": {"M": {"number": {"N": "7"}, "state": {"S": "on"}}},
        "lowest": {"N": "7"},
    }
    assert {e.source for e in found.values()} == {("DEVICE#d", "LOG#7")}


def test_items_without_a_value_or_beside_the_condition_offer_nothing():
    assert entries_of(LastSeen, Log(device="d", number=7), SCHEMA).keys() == {"latest", "lowest"}
    off = Log(device="d", number=7, at=datetime(2026, 3, 1, tzinfo=UTC), state="off")
    assert "last" not in entries_of(LastSeen, off, SCHEMA)


def test_an_item_may_show_nothing_and_still_be_the_last():
    log = Log(device="d", number=7, at=datetime(2026, 3, 1, tzinfo=UTC))
    assert entries_of(LastSeen, log, SCHEMA)["last_state"].value is None


def test_of_a_table_without_a_sort_key_an_entry_names_a_key_with_an_empty_one():
    assert source_of_entry(Key(Log, "DEVICE#d", None)) == ("DEVICE#d", "")


def test_the_lowest_are_kept_where_that_is_said():
    extremes = extremes_of(LastSeen)
    assert extremes["lowest"].ranking == Ranking(2, highest=False)
    assert extremes["latest"].ranking == Ranking(2, highest=True)
    assert [extremes[n].ranking.highest for n in ("first", "last", "first_state")] == [0, 1, 0]


def test_an_aggregate_without_entries_has_none():
    assert stored_entries(LastSeen, "last", {}) == []
    assert stored_entries(LastSeen, "latest", {}) == []


# -- declarations ----------------------------------------------------------------------------------


def declare(annotation, default=None, *, members=lambda _, device: Log.query(device=device), **kw):
    namespace = {
        "__module__": __name__,
        "__annotations__": {"device": str, "best": annotation},
        "best": default,
        "group": classmethod(lambda cls, log: cls.key(device=log.device)),
    }
    if members is not None:
        namespace["members"] = classmethod(members)
    made = type(Log)("Made", (Aggregate[Log],), namespace, pk="M#{device}", sk="M", **kw)
    App("app", table="Logs").aggregate(made)


MAX = Annotated[datetime | None, Max("at")]


@pytest.mark.parametrize(
    ("annotation", "given", "text"),
    [
        (MAX, {"members": None}, r"best need members\(\)"),
        (MAX, {"members": lambda _: Log.query(device="d")}, "fields of the group's key by name"),
        (
            MAX,
            {"members": lambda _, device: Log.query(index=Log.by_state, state=device)},
            "looks at the index GSI1",
        ),
        (MAX, {"members": lambda _, device: Log.query(device=device).limit(5)}, "the whole group"),
        (MAX, {"members": lambda _, device: [device]}, "returns a query of Log"),
        (Annotated[datetime | None, Max("when")], {}, "best measures 'when', and Log has no such"),
        (Annotated[str | None, Last("state", by="date")], {}, "measures 'date'"),
        (Annotated[tuple[int, ...], Top(3, by="number")], {}, r"needs the default \(\)"),
        (Annotated[int, Max("number")], {"default": 0}, "needs the default None"),
        (Annotated[str | None, Max("tags")], {}, "ordered by 'tags', and a set has no order"),
        (Annotated[str | None, Max("read")], {}, "ordered by 'read', and a bool has no order"),
        (Annotated[str | None, Max("level")], {}, "ordered by 'level', and a Level has no order"),
        (MAX, {"spread": 4}, "leave out spread="),
        (MAX, {"remove_empty": True}, "leave out remove_empty="),
        (MAX, {"approximate": True}, "leave out approximate="),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_registered(annotation, given, text):
    with pytest.raises(DeclarationError, match=text):
        declare(annotation, **given)


def test_a_made_up_key_that_does_not_fit_says_nothing_about_the_declaration():
    def members(_, device):
        if device == "1":
            raise ValueError("no such device")
        return Log.query(device=device)

    declare(MAX, members=members)


def test_a_class_of_pydantic_may_have_an_order():
    declare(Annotated[datetime | None, Max("seen")])


def test_what_top_keeps_of_an_item_is_a_function_and_no_name():
    with pytest.raises(DeclarationError, match=r"of='state' is no function of the item"):
        Top(3, by="number", of="state")


@pytest.mark.parametrize("n", [0, 1001])
def test_top_keeps_between_one_and_a_thousand(n):
    with pytest.raises(DeclarationError, match="between 1 and 1000"):
        Top(n, by="number")
    assert [Top(most, by="number").ranking.size for most in (1, 1000)] == [1, 1000]


def test_extremes_are_not_kept_in_the_applications_own_items():
    class Device(Entity, pk="DEVICE#{device}", sk="DEVICE"):
        device: str
        best: datetime | None = None

    class Best(Aggregate[Log], onto=Device):
        best: Annotated[datetime | None, Max("at")] = None

        @classmethod
        def group(cls, log: Log) -> Key[Device]:
            return Device.key(device=log.device)

        @classmethod
        def members(cls, device: str):
            return Log.query(device=device)

    with pytest.raises(DeclarationError, match="leave out onto="):
        App("app", table="Logs").aggregate(Best)


def test_an_aggregate_with_extremes_holds_the_queues_of_parked_changes_and_one_of_sums_does_not():
    app = App("app", table="Logs")
    app.aggregate(LastSeen)
    (handler,) = app.handlers
    assert not handler.commutes
    assert handler.is_aggregate
    assert handler.is_async
