"""Handlers as they are declared: what their signature and their decorator say."""

from typing import Annotated, Any

import pytest

from streamkit import (
    Aggregate,
    App,
    Count,
    DeclarationError,
    Entity,
    Inserted,
    Policy,
    Put,
    Set,
    Table,
    Webhook,
)
from streamkit.core.reading import ReadTracker
from streamkit.kinds.injection import injector
from streamkit.kinds.lifespan import open_lifespan
from streamkit.model.schema import TableSchema


class Loan(Entity, pk="MEMBER#{member}", sk="LOAN#{book}"):
    member: str
    book: str


class Notice(Entity, pk="NOTICE#{member}", sk="NOTICE"):
    member: str


class Member(Entity, pk="MEMBER#{member}", sk="MEMBER"):
    member: str


def handler_of(function, /, **said):
    app = App("library", table="Library")
    app.on(**said)(function)
    return app.handlers[0]


def plain(change: Inserted[Loan]) -> Put[Notice] | None: ...


async def serving(change: Inserted[Loan], to: Member) -> None: ...


# -- the signature ---------------------------------------------------------------------------------


def test_a_handler_asks_for_what_its_parameters_name_unless_they_have_a_default():
    async def asking(change: Inserted[Loan], table: Table, *, limit: int = 3) -> None: ...

    assert handler_of(asking).needs == {"table": Table}


@pytest.mark.parametrize("annotation", [list[int], "Table | None", None])
def test_a_parameter_whose_annotation_is_no_class_is_refused(annotation: Any):
    async def asking(change: Inserted[Loan], tables) -> None: ...

    if annotation is not None:
        asking.__annotations__["tables"] = annotation
    with pytest.raises(DeclarationError, match="annotate 'tables' with the class"):
        handler_of(asking)


def test_a_handler_of_nothing_is_told_that_it_takes_the_change():
    def nothing() -> None: ...

    with pytest.raises(DeclarationError, match="a handler takes the change"):
        handler_of(nothing)


# -- the decorator ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [{"cycle": "endless"}, {"shadow": "logs"}, {"delivery": "once"}, {"migrations": "supress"}],
)
def test_a_word_that_is_none_of_those_that_are_taken_is_refused(said):
    """Otherwise a wrong one would mean something else: no change of any migration is delivered."""
    (name,) = said
    with pytest.raises(DeclarationError, match=rf"plain .*: {name}=.*: one of \("):
        handler_of(plain, **said)


def test_a_fan_out_refuses_the_same_words():
    with pytest.raises(DeclarationError, match="migrations='supress': one of"):
        App("library", table="Library").fan_out(audience, migrations="supress")(serving)


@pytest.mark.parametrize("shadow", [True, "log"])
def test_a_shadow_holds_up_nothing_and_is_a_new_handler_once_it_is_applied(shadow):
    applied, compared = handler_of(plain), handler_of(plain, shadow=shadow)
    assert compared.commutes
    assert not applied.commutes
    assert compared.definition != applied.definition
    assert compared.shadow == shadow


def test_what_a_handler_says_that_it_writes_is_known_to_the_app():
    app = App("library", table="Library")
    app.on(writes=[Notice, Member])(plain)
    (handler,) = app.handlers
    assert handler.writes == {Notice, Member}
    assert handler.names == {Loan, Notice, Member}


def test_a_handler_that_says_nothing_of_its_attempts_has_those_of_its_app():
    policy = Policy(timeout_seconds=7.0, attempts=4, on_failure="block")
    app = App("library", table="Library", policy=policy)
    app.on(plain)
    app.on(name="own", timeout=2.0, attempts=1, on_failure="skip")(plain)
    first, own = (handler.policy for handler in app.handlers)
    assert first == policy
    assert (own.timeout_seconds, own.attempts, own.on_failure) == (2.0, 1, "skip")
    with pytest.raises(DeclarationError, match="the first attempt counts"):
        app.on(name="never", attempts=0)(plain)


@pytest.mark.parametrize("migrations", ["deliver", "suppress"])
def test_what_a_handler_says_of_migrations_is_kept(migrations):
    assert handler_of(plain, migrations=migrations).migrations == migrations


# -- the other kinds -------------------------------------------------------------------------------


def audience(change: Inserted[Loan]):
    return Member.query(member=change.new.member)


def test_a_fan_out_begins_where_it_says_as_a_consumer_of_its_own():
    app = App("library", table="Library")
    app.fan_out(audience, start="2026-10-01", migrations="deliver")(serving)
    assert app.handlers == []
    (own,) = app.listeners.values()
    (handler,) = own.handlers
    assert (own.name, handler.migrations) == ("library.serving", "deliver")


def test_the_handlers_of_a_mirror_have_its_attempts():
    def copied(member: Member, loan: Loan) -> Set[Loan]: ...

    app = App("library", table="Library")
    app.mirror(
        copies=lambda member: Loan.query(member=member.member),
        source=lambda loan: Member.key(member=loan.member),
        attempts=9,
        timeout=2.5,
    )(copied)
    policies = {
        (handler.policy.attempts, handler.policy.timeout_seconds) for handler in app.handlers
    }
    assert len(app.handlers) > 1
    assert policies == {(9, 2.5)}


def test_an_app_has_one_sink_of_a_name():
    app = App("library", table="Library")
    app.sink(Webhook("hook", "https://example.com/hook"))
    with pytest.raises(DeclarationError, match="has a sink 'hook' already"):
        app.sink(Webhook("hook", "https://example.com/other"))


def test_an_aggregate_that_removes_empty_groups_has_a_handler_of_its_own_items():
    class Loans(Aggregate[Loan], pk="LOANS#{member}", sk="LOANS", remove_empty=True):
        member: str
        loans: Annotated[int, Count()] = 0

    app = App("library", table="Library")
    app.aggregate(Loans)
    assert [handler.entity for handler in app.handlers] == [Loan, Loans]


def test_an_app_tells_the_items_of_its_aggregates_apart():
    class LoansOf(Aggregate[Loan], pk="LOANS#{member}", sk="LOANS"):
        member: str
        loans: Annotated[int, Count()] = 0

    app = App("library", table="Library")
    app.aggregate(LoansOf)
    assert app.entities == (LoansOf, Loan)


def test_what_is_done_everywhere_may_be_said_in_several_places():
    app = App("library", table="Library")
    app.squashed("0001", "0002")
    app.squashed("0002", "0003")
    assert app.done_everywhere == ("0001", "0002", "0003")


# -- what the lifespan yields ----------------------------------------------------------------------


class Mailer: ...


class FastMailer(Mailer): ...


@pytest.mark.parametrize("several", [True, False])
async def test_a_parameter_gets_what_the_lifespan_yields_of_its_class(several):
    async def asking(change: Inserted[Loan], mailer: Mailer) -> None: ...

    async def life():
        yield (b"other", mailer, Mailer()) if several else mailer

    mailer = FastMailer()
    schema = TableSchema("Library", "pk", "sk", "S", "S", {})
    async with open_lifespan(life) as resources:
        tools = injector(None, schema, resources)
        assert tools(handler_of(asking), ReadTracker()) == {"mailer": mailer}
    async with open_lifespan(None) as resources:
        assert resources == ()
