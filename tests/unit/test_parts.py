"""The parts of a spread group are read as one item, and nothing else is taken for a part."""

import pytest

from streamkit.model.parts import Parts, is_part, suffix, without_suffix


def test_sums_of_parts_keep_38_digits():
    parts = Parts(2, lambda name: name == "total")
    some = [{"total": {"N": "1" * 38}, "shop": {"S": "a"}}, {"total": {"N": "-1"}}]
    assert parts.merge(some) == {"total": {"N": "1" * 37 + "0"}, "shop": {"S": "a"}}
    with pytest.raises(ArithmeticError):
        parts.merge([{"total": {"N": "9" * 38}}, {"total": {"N": "2"}}])


def test_only_a_key_with_the_number_of_a_part_belongs_to_one():
    assert without_suffix(f"SALES{suffix(7)}") == "SALES"
    assert suffix(0) == ""
    for key in ("SALES", "SALES#_sk~ab", "SALES#_sk~1", "SALES#_sk~011", "07"):
        assert not is_part(key)
        assert without_suffix(key) == key
