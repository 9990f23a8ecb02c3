"""An aggregate that could not count what it says is refused when it is declared."""

from typing import Annotated

import pytest

from streamkit import (
    Aggregate,
    App,
    Count,
    DeclarationError,
    Entity,
    Key,
)


class Loan(Entity, pk="MEMBER#{member}", sk="LOAN#{number}"):
    member: str
    number: int


class Reservation(Entity, pk="MEMBER#{member}", sk="RESERVATION#{number}"):
    member: str
    number: int


class Member(Entity, pk="MEMBER#{member}", sk="MEMBER"):
    member: str
    things: int = 0
    waits: int = 0


# -- two aggregates of one item --------------------------------------------------------------------


class Loans(Aggregate[Loan], onto=Member):
    things: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, loan: Loan) -> Key[Member]:
        return Member.key(member=loan.member)


class Waits(Aggregate[Reservation], onto=Member):
    waits: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, one: Reservation) -> Key[Member]:
        return Member.key(member=one.member)


class Things(Waits, onto=Member):
    things: Annotated[int, Count()] = 0


def test_two_aggregates_may_add_to_different_fields_of_one_item():
    app = App("library", table="Library")
    app.aggregate(Loans)
    app.aggregate(Waits)
    assert app.aggregates == [Loans, Waits]


def test_two_aggregates_that_add_to_one_field_are_refused():
    app = App("library", table="Library")
    app.aggregate(Loans)
    with pytest.raises(DeclarationError, match=r"Things .*Loans .* adds to things of Member, too"):
        app.aggregate(Things)
    assert app.aggregates == [Loans]
