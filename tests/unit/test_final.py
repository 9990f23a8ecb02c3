"""The end of a trial: what is compared, and what counts as missing."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Annotated

from streamkit import Aggregate, Count, Entity, Key, Max
from streamkit.testing.final import Comparison, Final


class Like(Entity, pk="LIKE#{brand}#{user}", sk="LIKE"):
    brand: str
    user: str
    seen: int = 0


class Likes(Aggregate[Like], pk="LIKES#{brand}", sk="LIKES"):
    brand: str
    likes: Annotated[int, Count()] = 0
    most: Annotated[int | None, Max("seen")] = None

    @classmethod
    def group(cls, like: Like) -> Key["Likes"]:
        return cls.key(brand=like.brand)

    @classmethod
    def members(cls, brand: str):
        return Like.query(brand=brand, user="ann")


def final(*items):
    found = {}
    for item in items:
        found.setdefault(("T", type(item)), []).append(item)
    for entity in (Like, Likes):
        found.setdefault(("T", entity), [])
    tables = SimpleNamespace(own=SimpleNamespace(name="T"))
    return Final(datetime(2026, 1, 1, tzinfo=UTC), (), {}, tables, {}, found)


def test_what_is_there_and_must_not_be_differs_as_well_as_what_is_missing():
    compared = Comparison.of("likes", {"a": 1, "b": 2}, {"b": 2, "c": 3})
    assert (compared.compared, compared.holds) == (3, False)
    assert compared.differences == [
        "a: found 1, expected nothing",
        "c: found nothing, expected 3",
    ]


def test_a_group_counts_as_missing_only_if_all_its_measures_are_empty():
    empty, counted = Likes(brand="a"), Likes(brand="b", likes=1)
    assert final(empty, counted).compare(Likes, [counted]).holds
    ranked = Likes(brand="c", most=5)
    assert final(ranked).compare(Likes, []).differences == [
        "LIKES#c LIKES: found brand='c', likes=0, most=5, expected nothing"
    ]


def test_fields_may_be_left_out_of_a_comparison():
    found, wanted = Like(brand="a", user="ann", seen=1), Like(brand="a", user="ann", seen=2)
    assert not final(found).compare(Like, [wanted]).holds
    assert final(found).compare(Like, [wanted], ignore={"seen"}).holds
