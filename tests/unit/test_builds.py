"""Builds of aggregates: what one leaves to be swept, and when functions count by its ledger."""

from types import SimpleNamespace

import pytest

from streamkit.aws_lambda.counting import Counting
from streamkit.model.builds import OUTLASTED_SECONDS, Build, next_build, retired


def test_a_build_that_is_over_leaves_its_ledger_to_the_next_one_until_it_is_swept():
    counting = Build(3, "counting", segments=4, past=((2, 1),))
    assert next_build(counting, 5, 1, 0).past == ((2, 1), (3, 4))
    swept = Build(3, "live", segments=4, past=())
    assert next_build(swept, 5, 1, 0).past == ()
    assert retired(swept) == Build(3, "live")


@pytest.mark.parametrize(
    ("state", "age", "by_ledger"),
    [
        ("emptying", 0, True),
        ("building", 0, True),
        ("scanning", 0, True),
        ("counting", OUTLASTED_SECONDS, True),
        ("counting", OUTLASTED_SECONDS + 1, False),
        ("live", 10, False),  # its ledger may be swept
    ],
)
def test_a_function_counts_by_the_ledger_until_no_other_does(state, age, by_ledger):
    handler = SimpleNamespace(name="Sales", in_build=lambda build: build)
    build = Build(3, state, scanned=1000)
    counting = Counting({"Sales": build}, 1000.0 + age)
    assert counting.as_run(handler, None) is (build if by_ledger else handler)
    assert Counting({}, 0.0).as_run(handler, None) is handler
