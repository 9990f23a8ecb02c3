"""What an application writes with `open_table`."""

from typing import ClassVar

import pytest

from streamkit import Add, App, Entity, Index, OpenTable, Put, Set, absent
from streamkit.testing import Harness


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    status: str = "NEW"
    times: int = 0
    by_status: ClassVar = Index("GSI1", pk="STATUS#{status}", sk="{number}")


@pytest.fixture
def harness():
    with Harness(App("shop", table="Shop", entities=[Order])) as harness:
        yield harness


def write(harness, *effects):
    async def work(aws):
        tables = harness.tables
        return await OpenTable(aws.dynamodb, tables.table, tables=tables.schemas).write(*effects)

    return harness.operate(work)


def orders(harness, status):
    return harness.query(Order.query(index=Order.by_status, status=status))


def test_an_item_is_written_with_its_index_keys_and_again_when_it_is_set(harness):
    assert write(harness, Put(Order(number=1)))
    assert orders(harness, "NEW") == [Order(number=1)]
    assert write(harness, Set(Order.key(number=1), status="PAID"))
    assert (orders(harness, "NEW"), len(orders(harness, "PAID"))) == ([], 1)


def test_several_effects_are_written_whole_or_not_at_all(harness):
    both = Put(Order(number=1)).only_if(absent), Add(Order.key(number=2), times=1)
    assert write(harness, *both) is True
    assert write(harness, *both) is False
    assert harness.get(Order.key(number=1)) == Order(number=1)
    assert len(harness.items()) == 2


def test_a_single_write_is_a_plain_call_and_an_addition_is_not_sent_twice(harness):
    effects = (Put(Order(number=1)), Add(Order.key(number=1), times=1))
    for effect, operation in zip(effects, ("PutItem", "TransactWriteItems"), strict=True):
        assert write(harness, effect)
        assert harness.world.calls[-1].operation == operation


def test_two_effects_on_one_item_are_refused(harness):
    with pytest.raises(ValueError, match="two effects are on one item"):
        write(harness, Put(Order(number=1)), Add(Order.key(number=1), times=1))
