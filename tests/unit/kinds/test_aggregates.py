"""What an aggregate's options make of a change, and which declarations cannot work."""

import dataclasses
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, ClassVar

import pytest

from streamkit import (
    Aggregate,
    App,
    Avg,
    Count,
    DeclarationError,
    Distinct,
    Entity,
    EpochSeconds,
    Index,
    Inserted,
    Key,
    Modified,
    Removed,
    Sum,
    Until,
    bucket,
    present,
)
from streamkit.changes import ItemKey, Kind
from streamkit.core.handler import Policy
from streamkit.kinds.aggregate.contributions import difference, groups_of
from streamkit.kinds.aggregate.emptying import emptying_handler
from streamkit.kinds.aggregate.handling import aggregate_handler
from streamkit.model.codec import decode_item
from streamkit.model.conditions import compile_condition
from streamkit.model.origin import LAST_CHANGE
from streamkit.model.parts import part_of_shard, suffix
from streamkit.testing.loop import run_virtually

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


class Sale(Entity, pk="SALE#{number}", sk="SALE#{number}"):
    number: int
    shop: str = "a"
    amount: Decimal = Decimal(1)
    buyer: str | float | None = None
    at: datetime = NOON


class Shop(Entity, pk="SHOP#{shop}", sk="SHOP"):
    shop: str
    sales: int = 0
    open: bool = True
    name: str = ""


class PerDay(Aggregate[Sale], pk="DAY#{shop}", sk="DAY#{day:%Y-%m-%d}"):
    shop: str
    day: datetime
    sales: Annotated[int, Count()] = 0
    expires: Annotated[EpochSeconds | None, Until("day", keep=timedelta(days=2))] = None

    @classmethod
    def group(cls, sale: Sale) -> Key["PerDay"]:
        return cls.key(shop=sale.shop, day=bucket(sale.at, "day", tz="UTC"))


class Buyers(Aggregate[Sale], pk="BUYERS#{shop}", sk="BUYERS"):
    shop: str
    buyers: Annotated[int, Distinct("buyer")] = 0

    @classmethod
    def group(cls, sale: Sale) -> Key["Buyers"]:
        return cls.key(shop=sale.shop)


def change(old=None, new=None, *, shard="shard-1", at=NOON, event="e1"):
    kind = Modified if old and new else Inserted if new else Removed
    return kind(ItemKey("k"), event, "1".zfill(40), shard, at, old, new)


def ran(aggregate, *arguments, **named):
    return aggregate_handler(aggregate, Policy()).run(change(*arguments, **named))


def declared(name="Sales", *, keys=True, fields=None, base=Aggregate[Sale], **keywords):
    """Declare an aggregate that groups by shop."""
    if keys:
        keywords |= {"pk": "SALES#{shop}", "sk": "SALES"}

    def group(cls, sale):
        stored = cls.__options__.onto or cls
        return stored.key(shop=sale.shop)

    fields = fields or {"sales": (Annotated[int, Count()], 0)}
    body = {"__module__": __name__, "__qualname__": name, "group": classmethod(group)}
    body["__annotations__"] = {"shop": str} | {n: kind for n, (kind, _) in fields.items()}
    body |= {n: default for n, (_, default) in fields.items()}
    return type(base)(name, (base,), body, **keywords)


# -- spread ----------------------------------------------------------------------------------------


def test_a_shard_always_adds_to_one_part_and_shards_to_different_ones():
    spread = declared(spread=8)
    (first,), (again,) = (ran(spread, None, Sale(number=n)) for n in (1, 2))
    assert first.key == again.key
    parts = {part_of_shard(f"shardId-{n:020d}-abcdef", 8) for n in range(100)}
    assert parts == set(range(8))


def test_what_a_shard_adds_to_a_spread_group_goes_to_its_part():
    spread = declared(spread=8)
    shards = [f"shard-{n}" for n in range(20)]
    parts = {ran(spread, None, Sale(number=1), shard=shard)[0].key.part for shard in shards}
    assert parts == {part_of_shard(shard, 8) for shard in shards}
    assert len(parts) > 4


def test_what_is_approximate_is_added_without_a_condition():
    (exact,) = ran(declared(), None, Sale(number=1))
    (approximate,) = ran(declared(approximate=True), None, Sale(number=1))
    assert (exact.plain, approximate.plain) == (False, True)


@pytest.mark.parametrize("options", [{}, {"approximate": True}])
def test_an_item_counts_once_in_a_group_that_group_names_twice(options):
    def twice(cls, sale):
        return [cls.key(shop=sale.shop), cls.key(shop=sale.shop)]

    made = declared(**options)
    made.group = classmethod(twice)
    (effect,) = ran(made, None, Sale(number=1))
    assert effect.amounts == {"sales": 1}
    assert len(groups_of(made, Sale(number=1))) == 1


def test_the_part_of_a_shard_is_the_same_in_every_process():
    assert [part_of_shard(f"shard-{n}", 8) for n in range(6)] == [0, 2, 1, 4, 7, 7]


# -- time buckets ----------------------------------------------------------------------------------


def test_a_contribution_says_until_when_its_bucket_lives():
    (effect,) = ran(PerDay, None, Sale(number=1))
    assert decode_item(effect.stored) == {
        "expires": int(datetime(2024, 5, 3, tzinfo=UTC).timestamp())
    }


@pytest.mark.parametrize("seconds", [-1, 0, 1])
def test_a_contribution_to_a_bucket_that_was_over_before_the_change_is_dropped(seconds):
    over = datetime(2024, 5, 3, tzinfo=UTC)
    late = over + timedelta(seconds=seconds)
    sale = Sale(number=1)
    assert len(ran(PerDay, None, sale, at=late)) == (seconds <= 0)
    assert len(ran(PerDay, sale, None, at=late)) == (seconds <= 0)


def test_of_a_move_between_buckets_only_the_part_that_is_over_is_dropped():
    old, new = Sale(number=1, at=NOON - timedelta(days=5)), Sale(number=1)
    (effect,) = ran(PerDay, old, new)
    assert effect.amounts == {"sales": 1}


# -- onto ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "guard"),
    [("create", None), ("skip", (present, "omit")), ("park", (present, "park"))],
)
def test_what_is_missing_is_created_skipped_or_parked(missing, guard):
    onto = declared(keys=False, onto=Shop, missing=missing)
    (effect,) = ran(onto, None, Sale(number=1))
    assert effect.key == Shop.key(shop="a")
    assert (effect.guard and (effect.guard.condition, effect.guard.otherwise)) == guard


def test_groups_of_another_entity_are_refused():
    class Wrong(Aggregate[Sale], onto=Shop):
        sales: Annotated[int, Count()] = 0

        @classmethod
        def group(cls, sale: Sale) -> Key[Sale]:
            return sale.item_key

    with pytest.raises(TypeError, match="keys of Shop, not Sale"):
        ran(Wrong, None, Sale(number=1))


# -- distinct values -------------------------------------------------------------------------------


def amounts(value):
    effects = difference(Buyers, None, Sale.model_construct(number=1, shop="a", buyer=value))
    return effects[0].amounts if effects else {}


EQUAL = [
    (1, 1.0, Decimal("1.00")),
    (0, -0.0, Decimal("-0.0")),
    (Decimal("1E+2"), 100),
    ((1, 2.0), [1, 2]),
    ({"a": 1, "b": 2}, {"b": 2, "a": Decimal("1.0")}),
    (frozenset({1, 10}), {Decimal("10.0"), 1}),
    ({11, 100}, {11, Decimal("1E+2")}),  # as texts they have another order
]


@pytest.mark.parametrize("equal", EQUAL)
def test_equal_values_are_one_value(equal):
    assert len({tuple(amounts(value)) for value in equal}) == 1


def test_different_values_are_different_also_by_type():
    values = [1, "1", True, b"1", (1,), {"1": 1}, 0.1, "", "a"]
    assert len({tuple(amounts(value)) for value in values}) == len(values)


def test_no_value_contributes_nothing_and_what_cannot_be_stored_fails():
    assert amounts(None) == amounts(set()) == amounts(frozenset()) == {}
    assert all(amounts(value) for value in ("", [], {}, 0))
    with pytest.raises(ValueError, match="NaN"):
        amounts(float("nan"))


def test_a_value_is_counted_while_anybody_has_it():
    read = Buyers.upcasts()[-1]
    assert read({"buyers~a": 2, "buyers~b": 0, "buyers~c": 1, "buyers_": 5})["buyers"] == 2
    assert read({})["buyers"] == 0


def test_a_change_of_value_takes_the_old_one_and_gives_the_new_one():
    (effect,) = difference(Buyers, Sale(number=1, buyer="x"), Sale(number=1, buyer="y"))
    assert sorted(effect.amounts.values()) == [-1, 1]


# -- emptied groups --------------------------------------------------------------------------------


def test_where_empty_groups_go_each_contribution_says_which_change_it_is_of():
    (effect,) = ran(declared(remove_empty=True), None, Sale(number=1), event="abc")
    assert effect.stored == {LAST_CHANGE: {"S": "abc"}}


class Plain(Aggregate[Sale], pk="OF#{shop}", sk="{shop}", spread=2, remove_empty=True):
    shop: str
    sales: Annotated[int, Count()] = 0


class Stored:
    """A table that has the parts of a group; it notes which group was asked for."""

    def __init__(self, *parts):
        self.found, self.asked = dict(parts), []

    async def parts(self, key):
        self.asked.append((key.pk, key.sk))
        return self.found


def emptied(*parts):
    """Return what the handler does about a group of these parts, and the groups that it reads."""
    key = Plain.key(shop="a")
    keys = [key, dataclasses.replace(key, part=1)]
    table = Stored(*zip(keys, parts, strict=True))
    handler = emptying_handler(Plain, Policy())
    image = Plain.model_construct(shop=f"a{suffix(1)}", sales=0)
    found = run_virtually(lambda: handler.run(change(None, image), table))
    return found, table.asked


def test_a_group_goes_whole_or_not_at_all():
    marked = [{"sales": {"N": n}, LAST_CHANGE: {"S": n}} for n in ("1", "-1")]
    effects, asked = emptied(*marked)
    assert asked == [("OF#a", "a")]
    assert [effect.guard.otherwise for effect in effects] == ["skip", "skip"]
    conditions = [compile_condition(effect.guard.condition) for effect in effects]
    assert [values for _, _, values in conditions] == [{":v0": {"S": "1"}}, {":v0": {"S": "-1"}}]


def test_a_part_without_a_last_change_goes_if_it_has_none_still():
    effects, _ = emptied({"sales": {"N": "0"}}, {"sales": {"N": "0"}, LAST_CHANGE: {"S": "e"}})
    texts = [compile_condition(effect.guard.condition)[0] for effect in effects]
    assert texts == ["attribute_not_exists(#n0)", "#n0 = :v0"]


# -- sums ------------------------------------------------------------------------------------------


def test_an_item_of_zero_counts_in_the_mean():
    mean = Avg("amount")
    assert mean.amounts("mean", Sale(number=1, amount=Decimal(0))) == {
        "mean_sum": 0,
        "mean_count": 1,
    }


def test_a_difference_of_more_than_38_digits_fails_instead_of_being_rounded():
    total = declared(fields={"total": (Annotated[Decimal, Sum("amount")], Decimal(0))})
    with pytest.raises(ArithmeticError):
        ran(total, Sale(number=1, amount=Decimal("1E37")), Sale(number=1, amount=Decimal("0.01")))


# -- declarations ----------------------------------------------------------------------------------


def refused(text, make):
    app = App("app", table="T")
    with pytest.raises(DeclarationError, match=re.escape(text)) as caught:
        app.aggregate(make())
    assert "Sales" in str(caught.value)


AVG = {"mean": (Annotated[Decimal | None, Avg("amount")], None)}
UNTIL_SHOP = Annotated[EpochSeconds | None, Until("shop", keep=timedelta(1))]
UNTIL_DATE = Annotated[EpochSeconds | None, Until("day", keep=timedelta(1))]
COUNT = (Annotated[int, Count()], 0)


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("1 to 64 parts", {"spread": 0}),
        ("1 to 64 parts", {"spread": 65}),
        ("1 to 64 parts", {"spread": 2.5}),
        ("missing= says", {"missing": "park"}),
        ("create, skip or park", {"keys": False, "onto": Shop, "missing": "ignore"}),
        ("keys are those of Shop", {"onto": Shop}),
        ("put parts beside each Shop", {"keys": False, "onto": Shop, "spread": 2}),
        ("delete items of the application's", {"keys": False, "onto": Shop, "remove_empty": True}),
        ("never known to be empty", {"approximate": True, "remove_empty": True}),
        ("parks nothing", {"keys": False, "onto": Shop, "missing": "park", "approximate": True}),
        ("Avg keeps attributes", {"keys": False, "onto": Shop, "fields": AVG}),
        (
            "no field that is stored as 'likes'",
            {"keys": False, "onto": Shop, "fields": {"likes": COUNT}},
        ),
        ("Shop.open is not a number", {"keys": False, "onto": Shop, "fields": {"open": COUNT}}),
        ("Shop.name is not a number", {"keys": False, "onto": Shop, "fields": {"name": COUNT}}),
        (
            "Until would let the application's Shop expire",
            {"keys": False, "onto": Shop, "fields": {"sales": COUNT, "end": (UNTIL_SHOP, None)}},
        ),
        ("neither a datetime nor a date", {"fields": {"sales": COUNT, "end": (UNTIL_SHOP, None)}}),
        ("no field of the group's key", {"fields": {"sales": COUNT, "end": (UNTIL_DATE, None)}}),
        ("unknown class keyword 'spreads'", {"spreads": 2}),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_declared(text, given):
    refused(text, lambda: declared(**given))


def test_a_group_may_have_as_many_parts_as_there_are_suffixes():
    app = App("app", table="T")
    app.aggregate(declared(spread=64))
    assert app.aggregates[0].__options__.spread == 64


def test_a_bucket_of_dates_needs_a_time_zone_for_its_end():
    class SalesOfDay(Aggregate[Sale], pk="D#{day}", sk="D"):
        day: date
        sales: Annotated[int, Count()] = 0
        end: Annotated[EpochSeconds | None, Until("day", keep=timedelta(1))] = None

        @classmethod
        def group(cls, sale: Sale) -> Key["SalesOfDay"]:
            return cls.key(day=sale.at.date())

    refused("a date begins at no moment", lambda: SalesOfDay)


def test_a_spread_aggregate_has_no_index():
    class SalesByCount(Aggregate[Sale], pk="S#{shop}", sk="S", spread=4):
        by_shop: ClassVar = Index("GSI1", pk="{shop}")
        shop: str
        sales: Annotated[int, Count()] = 0

        @classmethod
        def group(cls, sale: Sale) -> Key["SalesByCount"]:
            return cls.key(shop=sale.shop)

    refused("an index would list the parts", lambda: SalesByCount)


# -- definitions -----------------------------------------------------------------------------------

OPTIONS = [
    {},
    {"spread": 2},
    {"spread": 3},
    {"remove_empty": True},
    {"approximate": True},
    {"keys": False, "onto": Shop},
    {"keys": False, "onto": Shop, "missing": "create"},
    {"keys": False, "onto": Shop, "missing": "park"},
]


def definitions(cases: Iterable[dict]):
    return [aggregate_handler(declared(**case), Policy()).definition for case in cases]


def test_every_option_makes_another_definition():
    found = definitions(OPTIONS)
    assert len(set(found)) == len(OPTIONS)
    assert definitions(OPTIONS) == found


def test_another_end_of_a_bucket_makes_another_definition():
    def keeping(days):
        until = Annotated[EpochSeconds | None, Until("day", keep=timedelta(days))]
        fields = {"day": (datetime, NOON), "sales": COUNT, "end": (until, None)}
        keys = {"pk": "SALES#{shop}", "sk": "{day}"}
        made = declared(keys=False, fields=fields, **keys)
        return aggregate_handler(made, Policy()).definition

    assert keeping(1) == keeping(1) != keeping(2)


def test_another_key_or_another_measure_makes_another_definition():
    """A key may come from a constant, and of a class that was made there is no source text."""
    keys = [{"keys": False, "pk": "SALES#{shop}", "sk": sk} for sk in ("A", "B")]
    found = definitions([*keys, keys[0] | {"fields": {"other": COUNT}}])
    assert len(set(found)) == 3


def test_what_is_approximate_parks_nothing():
    assert aggregate_handler(declared(), Policy()).policy.on_failure == "park"
    approximate = aggregate_handler(declared(approximate=True), Policy(on_failure="park"))
    assert approximate.policy.on_failure == "skip"


def test_an_aggregate_writes_its_items_and_causes_no_removal_of_them():
    made = declared()
    handler = aggregate_handler(made, Policy())
    assert handler.writes == {made}
    assert handler.causes == {made: {Kind.INSERTED, Kind.MODIFIED}}


def test_options_are_inherited_one_by_one():
    parent = declared(spread=4)
    child = declared("Child", base=parent, keys=False, remove_empty=True)
    assert (child.__options__.spread, child.__options__.remove_empty) == (4, True)
    assert parent.__options__.remove_empty is False
