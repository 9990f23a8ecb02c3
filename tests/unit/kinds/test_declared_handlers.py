"""Handlers as they are declared: what their signature and their decorator say."""

from typing import Any

import pytest

from streamkit import App, DeclarationError, Entity, Inserted, Policy, Put, Table
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
    def audience(change: Inserted[Loan]):
        return Member.query(member=change.new.member)

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
