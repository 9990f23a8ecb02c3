"""An aggregate that could not count what it says is refused when it is declared."""

from decimal import Decimal
from typing import Annotated, Any

import pytest

from streamkit import (
    Aggregate,
    App,
    Avg,
    Count,
    DeclarationError,
    Distinct,
    Entity,
    Key,
    Max,
    Modified,
    Query,
    Sum,
    became,
)
from streamkit.app import consumers_of


class Loan(Entity, pk="MEMBER#{member}", sk="LOAN#{number}"):
    member: str
    number: int
    days: int = 14
    fee: Decimal | None = None


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


def heard(change: Modified[Loans]) -> None: ...


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


@pytest.mark.parametrize(
    "use",
    [
        lambda: Loans.key(member="ann"),
        lambda: Loans.query(member="ann"),
        lambda: App("library", table="Library").on(heard),
    ],
)
def test_an_aggregate_without_items_of_its_own_says_what_to_read_instead(use):
    with pytest.raises(DeclarationError, match=r"Loans .*those of Member; use Member in its place"):
        use()


def test_two_aggregates_that_add_to_one_field_are_refused():
    app = App("library", table="Library")
    app.aggregate(Loans)
    with pytest.raises(DeclarationError, match=r"Things .*Loans .* adds to things of Member, too"):
        app.aggregate(Things)
    assert app.aggregates == [Loans]


@pytest.mark.parametrize("first", ["app", "listener", "start="])
def test_aggregates_of_one_field_are_refused_across_an_app_and_its_listeners(first):
    app = App("library", table="Library")
    listener = app.listener("slow")
    one = {
        "app": app.aggregate,
        "listener": listener.aggregate,
        "start=": app.aggregate(start="latest"),
    }
    one.pop(first)(Loans)
    for register in one.values():
        with pytest.raises(DeclarationError, match=r"Things .*Loans .* adds to things of Member"):
            register(Things)
        with pytest.raises(DeclarationError, match=r"Loans.* is registered already"):
            register(Loans)


def test_aggregates_of_one_field_are_refused_where_two_apps_of_one_table_run_together():
    one, other, apart = (
        App(name, table=table) for name, table in [("a", "Library"), ("b", "Library"), ("c", "Old")]
    )
    one.aggregate(Loans)
    other.aggregate(Things)
    apart.aggregate(Loans)
    assert consumers_of([one, apart]) == [one, apart]
    with pytest.raises(DeclarationError, match=r"Things .*Loans .* adds to things of Member, too"):
        consumers_of([one, apart, other])


# -- measures that measure nothing -----------------------------------------------------------------


def declared(annotation: Any, default: Any = 0) -> None:
    """Declare an aggregate that has a count, and one more field."""

    class Kept(Aggregate[Loan], pk="KEPT#{member}", sk="KEPT"):
        __annotations__ = {
            "member": str,
            "loans": Annotated[int, Count()],
            "more": annotation,
        }
        loans = 0
        more = default

        @classmethod
        def members(cls, member: str) -> Query[Loan]:
            return Loan.query(member=member)

    App("library", table="Library").aggregate(Kept)


@pytest.mark.parametrize(
    ("annotation", "default", "named"),
    [
        (Annotated[int, Count], 0, "Count"),
        (int, Count(), "Count"),
        (int, Sum("days"), "Sum"),
        (int | None, Max("days"), "Max"),
        (Annotated[int, Distinct], 0, "Distinct"),
    ],
)
def test_a_measure_that_would_never_be_kept_is_refused(annotation, default, named):
    with pytest.raises(DeclarationError, match=f"more has no measure; write {named} with its par"):
        declared(annotation, default)


@pytest.mark.parametrize("when", ["days", became("days", 7)], ids=["field", "of handlers"])
@pytest.mark.parametrize("measure", [Count, Sum, Max])
def test_a_condition_of_a_measure_that_is_no_function_is_refused(measure, when):
    default = None if measure is Max else 0
    made = measure(when) if measure is Count else measure("days", when=when)
    with pytest.raises(DeclarationError, match=rf"more: when= of {measure.__name__} is a function"):
        declared(Annotated[int | None, made], default)


# -- fractions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("measure", [Sum("fee"), Avg("fee"), Avg("days")])
def test_a_fraction_is_not_kept_in_a_whole_number(measure):
    with pytest.raises(DeclarationError, match=r"Kept.more is an int, and .* annotate it as Dec"):
        declared(Annotated[int, measure])


@pytest.mark.parametrize(
    ("kept", "measure"),
    [
        (int, Sum("days")),
        (int, Sum(lambda loan: loan.days)),
        (int | Decimal, Sum("fee")),
        (Decimal, Sum("fee")),
        (float | None, Avg("days")),
        (Any, Avg("days")),
    ],
)
def test_what_may_be_whole_is_kept_as_it_is_declared(kept, measure):
    declared(Annotated[kept, measure])


def test_a_fraction_is_not_added_to_a_whole_number_of_the_application():
    class Fees(Loans):
        things: Annotated[Decimal, Sum("fee")] = Decimal(0)

    with pytest.raises(DeclarationError, match=r"Member.things is an int, and Sum may keep a frac"):
        App("library", table="Library").aggregate(Fees)
