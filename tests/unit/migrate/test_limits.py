"""What an operator says of a migration's limits, and what the state holds then."""

from types import SimpleNamespace

import pytest

from streamkit import ConfigurationError
from streamkit.migrate.book.limits import Limit, limited, share_of
from streamkit.migrate.book.state import State
from streamkit.testing.loop import run_virtually


@pytest.mark.parametrize("name", ["max_reads", "max_writes"])
def test_a_limit_of_zero_is_none_and_one_that_is_not_said_stays(name):
    state = limited(State("0003"), Limit(**{name: 50.0, "max_errors": 3.0, "first": 10}))
    assert (getattr(state, name), state.max_errors, state.first) == (50.0, 3.0, 10)
    assert limited(state, Limit()) == state
    assert getattr(limited(state, Limit(**{name: 0.0})), name) is None
    gone = limited(state, Limit(max_errors=0.0, first=0))
    assert (gone.max_errors, gone.first) == (0.0, 0)


def shared(table, *indexes):
    async def describe_table(**_):
        parts = [{"ProvisionedThroughput": units} for units in (table, *indexes)]
        return {"Table": parts[0] | {"GlobalSecondaryIndexes": parts[1:]}}

    aws = SimpleNamespace(dynamodb=SimpleNamespace(describe_table=describe_table))
    return run_virtually(lambda: share_of(SimpleNamespace(table="T"), aws, 0.5))


def units(reads, writes):
    return {"ReadCapacityUnits": reads, "WriteCapacityUnits": writes}


def test_a_share_is_of_the_smallest_capacity_that_takes_the_writes():
    found = shared(units(100, 80), units(10, 20), units(300, 300))
    assert (found.max_reads, found.max_writes) == (50.0, 10.0)
    for on_demand in ([units(0, 0)], [units(100, 80), units(0, 0)]):
        with pytest.raises(ConfigurationError, match="on-demand"):
            shared(*on_demand)
