"""Estimates of sizes are never too small: what is planned by them must fit into a transaction."""

from typing import Any

import pytest

from streamkit.model.codec import encode
from streamkit.model.sizes import attributes_size, item_size, size_at_most


@pytest.mark.parametrize(
    "value",
    [
        "x" * 1000,
        "ü" * 1000,
        b"x" * 1000,
        10**37,
        True,
        None,
        ["ü", b"xyz", 1],
        {"name": ["x"] * 100, "ü": {"b": b"x" * 100}},
        {"a", "bc"},
    ],
)
def test_a_plain_value_is_not_larger_as_it_is_stored(value: Any) -> None:
    stored = {"a": encode(value)}
    assert size_at_most({"a": value}) >= item_size(stored)
    assert attributes_size(stored) >= item_size(stored)


@pytest.mark.parametrize("digits", [1, 2, 20, 38])
def test_numbers_in_a_set_are_as_large_as_beside_each_other(digits: int) -> None:
    numbers = [str(n) * digits for n in range(1, 9)]
    apart = sum(item_size({"": {"N": number}}) for number in numbers)
    assert item_size({"": {"NS": numbers}}) >= apart
