"""An aggregate's groups follow from its key, where the key's fields are fields of the source."""

from datetime import UTC, date, datetime
from typing import Annotated

import pytest

from streamkit import Aggregate, App, Count, DeclarationError, Entity
from streamkit.kinds.aggregate.contributions import contributions


class Order(Entity, pk="C#{user}", sk="O#{order}"):
    user: str
    order: int
    status: str | None = None
    day: date = date(2024, 5, 1)
    at: datetime = datetime(2024, 5, 1, 10, tzinfo=UTC)


class ByStatus(Aggregate[Order], pk="S#{status}", sk="U#{user}#{day:%Y%m%d}"):
    status: str
    user: str
    day: date
    orders: Annotated[int, Count()] = 0


def test_an_aggregate_groups_by_the_fields_of_its_key():
    App("shop", table="Shop").aggregate(ByStatus)
    order = Order(user="ann", order=1, status="NEW")
    key = ByStatus.key(status="NEW", user="ann", day=date(2024, 5, 1))
    assert ByStatus.group(order) == key
    assert contributions(ByStatus, order) == {key: {"orders": 1}}


def test_an_item_without_a_field_of_the_groups_key_is_in_no_group():
    assert ByStatus.group(Order(user="ann", order=1)) is None


def test_a_key_without_fields_is_one_group_of_everything():
    class All(Aggregate[Order], pk="ALL", sk="ALL"):
        orders: Annotated[int, Count()] = 0

    App("shop", table="Shop").aggregate(All)
    assert All.group(Order(user="ann", order=1)) == All.key()


def test_an_aggregate_onto_an_entity_groups_by_the_fields_of_its_key():
    class User(Entity, pk="C#{user}", sk="USER"):
        user: str
        orders: int = 0

    class Orders(Aggregate[Order], onto=User):
        orders: Annotated[int, Count()] = 0

    App("shop", table="Shop").aggregate(Orders)
    assert Orders.group(Order(user="ann", order=1)) == User.key(user="ann")


def test_a_group_that_does_not_follow_from_the_key_is_refused_with_its_line():
    class ByMonth(Aggregate[Order], pk="M#{at:%Y-%m}", sk="M"):
        at: datetime
        orders: Annotated[int, Count()] = 0

    class ByDay(Aggregate[Order], pk="D#{at:%Y%m%d}", sk="D"):
        at: date  # the source's is a moment
        orders: Annotated[int, Count()] = 0

    class ByCountry(Aggregate[Order], pk="C#{country}", sk="C"):
        country: str
        orders: Annotated[int, Count()] = 0

    part, unknown = "a part of at alone", "no field country"
    for aggregate, what in ((ByMonth, part), (ByDay, part), (ByCountry, unknown)):
        with pytest.raises(DeclarationError, match=rf"test_groups.py:\d+\): .*{what}"):
            App("shop", table="Shop").aggregate(aggregate)
