"""What people get wrong when they declare things is refused where it stands, with what to do."""

import re
from collections.abc import AsyncIterator, Iterable, Sequence
from decimal import Decimal
from typing import Annotated, Any

import pytest

from streamkit import (
    Add,
    Aggregate,
    App,
    Avg,
    Check,
    Count,
    DeclarationError,
    Delete,
    Entity,
    Index,
    IndexShape,
    Inserted,
    Modified,
    Policy,
    Put,
    Query,
    Set,
    Sum,
    TableShape,
    Telemetry,
    Webhook,
    absent,
    changed,
)
from streamkit.archive import DirectoryArchive
from streamkit.effects import as_effects
from streamkit.kinds.fan_out.audience import as_sources
from streamkit.kinds.mirror import read_mirror
from streamkit.model.queries import Scan
from streamkit.testing import inserted


class Loan(Entity, pk="MEMBER#{member}", sk="LOAN#{book}"):
    member: str
    book: str
    days: int = 14
    tags: frozenset[str] = frozenset()
    note: str | None = None


class Notice(Entity, pk="NOTICE#{member}", sk="NOTICE"):
    member: str


def an_app():
    return App("library", table="Library")


def returning(annotation):
    def handler(change: Inserted[Loan]): ...

    handler.__annotations__["return"] = annotation
    return handler


@pytest.mark.parametrize(
    ("annotation", "name"),
    [
        (Notice, "Notice"),
        (dict, "dict"),
        (str | None, "str"),
        (list[Notice], "Notice"),
        (int, "int"),
    ],
    ids=["entity", "dict", "text", "entities", "number"],
)
def test_a_handler_that_says_it_returns_no_effect_is_refused(annotation, name):
    with pytest.raises(DeclarationError, match=f"handler returns effects, .* not {name}"):
        an_app().on(returning(annotation))


@pytest.mark.parametrize("annotation", [Put[Notice], list[Put[Notice]], Put[Notice] | None])
def test_a_derivation_that_says_it_returns_effects_is_refused(annotation):
    def derived(loan: Loan): ...

    derived.__annotations__["return"] = annotation
    with pytest.raises(DeclarationError, match="returns the items that follow, as in -> Customer"):
        an_app().derive(derived)


def derivations(function):
    app = an_app()
    app.derive(function)
    return app.handlers[0].run


def test_a_derivation_that_returns_an_effect_is_told_what_it_derives():
    run = derivations(lambda_of(lambda loan: Put(Notice(member=loan.member))))
    with pytest.raises(
        TypeError, match=r"items are derived, as in CustomerEmail\(...\), not a Put"
    ):
        run(inserted(Loan(member="ann", book="b")))


def test_two_different_items_of_one_key_are_not_derived():
    one, other = (Loan(member="ann", book="z", days=days) for days in (1, 2))
    run = derivations(lambda_of(lambda loan: [one, other, one]))
    with pytest.raises(ValueError, match="derives two different items Loan of one key"):
        run(inserted(Loan(member="ann", book="b")))
    assert len(derivations(lambda_of(lambda loan: [one, one]))(inserted(one))) == 1


def lambda_of(function):
    def derived(loan: Loan):
        return function(loan)

    return derived


def test_a_mirror_without_parentheses_is_told_its_arguments():
    with pytest.raises(DeclarationError, match=r"by name, in parentheses: copies, source, when, "):
        an_app().mirror(lambda loan, notice: None)


def mirror(copies, source):
    def copied(notice: Notice, loan: Loan) -> Set[Loan]:
        return Set(loan.item_key, note=notice.member)

    return read_mirror(copied, name=None, copies=copies, source=source, gone="keep")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (lambda loan: Notice(member=loan.member), "as in Notice.key.* it returned .*Notice"),
        (lambda loan: loan.item_key, "source= returns the key of a copy's Notice.* a key of Loan"),
    ],
)
def test_a_mirror_whose_source_is_no_key_of_the_source_says_so(source, said):
    wrong = mirror(lambda notice: Loan.query(member=notice.member), source)
    with pytest.raises(TypeError, match=rf"copied .*{said}"):
        wrong.source(Loan(member="ann", book="b"))


def test_a_mirrors_source_may_be_none_or_of_a_kin_of_the_source():
    class ShortNotice(Notice, pk="NOTICE#{member}", sk="NOTICE"):
        pass

    def queried(notice):
        return Loan.query(member=notice.member)

    ann = Loan(member="ann", book="b")
    for key in (None, ShortNotice.key(member="ann")):
        assert mirror(queried, lambda _, key=key: key).source(ann) == key


def test_a_mirror_that_takes_source_and_copy_the_wrong_way_round_says_so():
    wrong = mirror(lambda loan: Notice.query(member=loan.member), lambda _: None)
    with pytest.raises(TypeError, match=r"asks for Notice.* it takes the source, then the copy"):
        wrong.copies(Loan(member="ann", book="b"))


@pytest.mark.parametrize("change", [Inserted[Loan | Notice], Inserted[Loan] | Modified[Notice]])
def test_a_handler_of_two_entities_is_told_to_be_two_handlers(change):
    def handler(change): ...

    handler.__annotations__["change"] = change
    with pytest.raises(DeclarationError, match=r"listens to one entity, .* one handler for each"):
        an_app().on(handler)


def test_an_aggregate_of_a_name_that_is_taken_needs_another_class_name():
    app = an_app()
    for number in range(2):

        class Loans(Aggregate[Loan], pk=f"LOANS{number}#{{member}}", sk="LOANS"):
            member: str
            loans: Annotated[int, Count()] = 0

        if not number:
            app.aggregate(Loans)
    with pytest.raises(DeclarationError, match="give one of them another class name"):
        app.aggregate(Loans)


def first_unknown(loan, notice):
    """Take what no module has; each kind of function is declared with it."""


first_unknown.__annotations__ |= {"loan": "Lone", "notice": "Notice"}


@pytest.mark.parametrize("kind", ["on", "fan_out", "mirror", "derive", "migration"])
def test_an_annotation_that_names_nothing_is_refused_with_its_line_in_each_kind(kind):
    app = an_app()
    decorate = {
        "on": app.on,
        "fan_out": app.fan_out(members),
        "mirror": app.mirror(copies=members, source=members),
        "derive": app.derive,
        "migration": app.migration("0001", Loan),
    }[kind]
    with pytest.raises(DeclarationError, match="annotations name 'Lone', unknown") as refused:
        decorate(first_unknown)
    assert "first_unknown (test_mistakes.py:" in str(refused.value)


def test_a_function_is_no_condition():
    for decorate in (an_app().on, lambda **options: an_app().fan_out(members, **options)):
        with pytest.raises(DeclarationError, match="when= takes changed"):
            decorate(when=lambda _change: True)(lend)


def members(change: Modified[Loan]):
    return Notice.query(member=change.new.member)


def lend(change: Modified[Loan], to: Notice) -> Put[Notice]: ...


def test_a_fan_out_without_an_audience_is_not_taken_for_one():
    with pytest.raises(DeclarationError, match=r"@app.fan_out\(audience\)"):
        an_app().fan_out(lend)


def test_a_group_that_is_no_classmethod_is_told_what_it_should_be():
    class PerBook(Aggregate[Loan], pk="PER#{book}", sk="PER"):
        book: str
        days: Annotated[int, Sum("days")] = 0

        def group(self, loan): ...

    with pytest.raises(DeclarationError, match="@classmethod"):
        an_app().aggregate(PerBook)


@pytest.mark.parametrize("measure", [Sum, Avg])
def test_text_cannot_be_summed(measure):
    class PerBook(Aggregate[Loan], pk="PER#{book}", sk="PER"):
        book: str
        total: Annotated[Decimal | None, measure("note")] = None

        @classmethod
        def group(cls, loan):
            return cls.key(book=loan.book)

    with pytest.raises(DeclarationError, match=r"total sums 'note', and Loan.note is not a number"):
        an_app().aggregate(PerBook)


@pytest.mark.parametrize("measure", [Sum, Avg])
def test_a_set_cannot_be_summed(measure):
    class PerBook(Aggregate[Loan], pk="PER#{book}", sk="PER"):
        book: str
        total: Annotated[Decimal | None, measure("tags")] = None

    with pytest.raises(DeclarationError, match=r"total sums 'tags', and Loan.tags is not a number"):
        an_app().aggregate(PerBook)


@pytest.mark.parametrize("kept", [set[str], str, list[int] | None], ids=["set", "text", "list"])
def test_a_count_is_not_kept_in_what_holds_no_number(kept):
    class PerBook(Aggregate[Loan], pk="PER#{book}", sk="PER"):
        book: str
        loans: Annotated[kept, Count()] = None

    with pytest.raises(DeclarationError, match=r"loans is a \w+, and Count keeps a number there"):
        an_app().aggregate(PerBook)


def test_an_aggregate_of_two_entities_is_told_why_not_and_what_instead():
    class PerMember(Aggregate[Loan | Notice], pk="PER#{member}", sk="PER"):
        member: str
        items: Annotated[int, Count()] = 0

    said = "counts one entity, .* one aggregate for each of Loan and Notice"
    with pytest.raises(DeclarationError, match=said):
        an_app().aggregate(PerMember)


@pytest.mark.parametrize("result", [{"book": "Kites"}, "Kites", 3, Notice(member="ann")], ids=repr)
def test_a_result_that_is_no_effect_is_named_whole(result):
    with pytest.raises(TypeError, match=rf"returns effects, .* not an? {type(result).__name__}$"):
        as_effects(result)


def generated(change: Inserted[Loan], after: str | None) -> AsyncIterator[tuple[str, Loan]]: ...


async def awaited(change: Inserted[Loan]) -> Query[Loan]: ...


@pytest.mark.parametrize(
    ("annotation", "name"),
    [
        (list[Loan], "list"),
        (Loan, "Loan"),
        (dict, "dict"),
        (str | None, "str"),
        (list[Query[Loan] | Loan], "list"),
        (tuple[str, ...], "tuple"),
    ],
)
def test_an_audience_that_says_that_it_returns_something_else_is_refused(annotation, name):
    with pytest.raises(DeclarationError, match=rf"returns a Query, .* not .*{name}") as refused:
        an_app().fan_out(returning(annotation))
    assert "test_mistakes.py:" in str(refused.value)


def test_an_audience_that_must_be_awaited_is_refused():
    with pytest.raises(DeclarationError, match="an audience is a def that returns a Query"):
        an_app().fan_out(awaited)


@pytest.mark.parametrize(
    "annotation",
    [
        Query[Loan],
        Query[Loan] | None,
        list[Query[Loan]],
        tuple[Query[Loan], ...],
        Sequence[Query[Loan]],
        Iterable[Query[Loan] | Scan[Loan]],
        Scan[Loan],
        list,
        Any,
        None,
        object,
        "Unknown",
    ],
)
def test_an_audience_whose_annotation_leaves_queries_open_is_taken(annotation):
    an_app().fan_out(returning(annotation))
    an_app().fan_out(generated)
    an_app().fan_out(lambda change: None)


def test_an_audience_that_returns_items_is_told_what_it_returns_instead():
    with pytest.raises(TypeError, match=r"returns a Query, .* not a Loan: streamkit reads"):
        as_sources([Loan(member="ann", book="Kites")])


@pytest.mark.parametrize("value", ["b", float("nan"), Decimal("Infinity")], ids=repr)
@pytest.mark.parametrize("measure", [Sum, Avg])
def test_what_is_no_number_fails_where_its_change_can_be_parked(measure, value):
    loan = Loan(member="ann", book="Kites")
    with pytest.raises(ValueError, match="must be a number"):
        measure(lambda _loan: value).amounts("total", loan)


def test_a_policy_is_not_a_dict():
    with pytest.raises(DeclarationError, match="policy= takes a Policy"):
        App("library", table="Library", policy={"attempts": 3})


def test_a_lifespan_that_does_not_yield_is_refused():
    async def life():
        return 3

    with pytest.raises(DeclarationError, match="yields once"):
        an_app().lifespan(life)


def test_what_is_wrong_with_a_listener_is_said():
    app = an_app()
    search = app.listener("search")
    for make, said in (
        (lambda: app.listener("search"), "of this name already"),
        (lambda: app.listener("a.b"), "leave out '.'"),
        (lambda: search.listener("deep"), "cannot have listeners"),
    ):
        with pytest.raises(DeclarationError, match=said):
            make()


KEY = Loan.key(member="ann", book="Kites")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Put({"book": "Kites"}), "Put takes an item, .* not a dict"),
        (lambda: Put(Loan), "not the class Loan"),
        (lambda: Put(KEY), "not a Key"),
        (lambda: Set("MEMBER#ann", days=3), "Set takes a key, .* not a str"),
        (lambda: Add(Loan(member="ann", book="Kites"), days=3), "Add takes a key, .* not a Loan"),
        (lambda: Delete(None), "Delete takes a key, .* not None"),
        (lambda: Check("MEMBER#ann", absent), "Check takes a key, .* not a str"),
    ],
    ids=["dict", "class", "key", "text", "item", "nothing", "check"],
)
def test_an_effect_on_something_else_names_what_it_takes(make, said):
    with pytest.raises(TypeError, match=said):
        make()


def test_an_unknown_outcome_of_a_condition_is_refused():
    with pytest.raises(ValueError, match="one of park, skip, omit, retry"):
        Delete(KEY).only_if(absent, otherwise="ignore")


def test_a_group_that_is_no_key_is_named():
    class PerBook(Aggregate[Loan], pk="PER#{book}", sk="PER"):
        book: str
        days: Annotated[int, Sum("days")] = 0

        @classmethod
        def group(cls, loan):
            return loan.book

    app = an_app()
    app.aggregate(PerBook)
    change = inserted(Loan(member="ann", book="Kites"))
    with pytest.raises(TypeError, match="keys of PerBook, not str"):
        app.handlers[0].run(change)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tables": "Other"}, r"tables= takes several names: \['Other'\]"),
        ({"shape": {"pk": "id"}}, r"shape= takes a TableShape"),
        ({"archive": "s3://changes"}, r"archive= takes one BucketArchive"),
        ({"archive": ["one", "two"]}, r"archive= takes one BucketArchive"),
    ],
)
def test_an_app_refuses_options_that_are_of_another_kind(options: Any, said: str) -> None:
    with pytest.raises(DeclarationError, match=rf"App\('shop'\): {said}"):
        App("shop", table="T", **options)


def test_a_second_archive_is_refused_with_the_reason() -> None:
    app = App("shop", table="T", archive=DirectoryArchive("changes"))
    with pytest.raises(
        DeclarationError, match=r"listener\('archive'\): App\(archive=...\) has made"
    ):
        app.listener("archive")


def test_an_argument_that_nobody_gives_says_what_there_is() -> None:
    app = App("shop", table="T")

    def notify(change: Inserted[Loan], mailer) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(
        DeclarationError, match=r"annotate 'mailer' .*: Table, or one that the app's"
    ):
        app.on(notify)


def misspelt(call: str) -> str:
    app = an_app()
    scope = {"App": App, "app": app, "Loan": Loan, "Policy": Policy}
    scope |= {"TableShape": TableShape, "IndexShape": IndexShape}
    with pytest.raises(DeclarationError) as caught:
        eval(compile(call, "mine.py", "eval"), scope)
    return str(caught.value)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("App('library', tabel='Library')", "did you mean 'table'?"),
        ("App('library', table='Library', shapes=None)", "did you mean 'shape'?"),
        ("app.listener('slow', polcy=None)", "did you mean 'policy'?"),
        ("app.on(time_out=3)", "did you mean 'timeout'?"),
        ("app.on(retries=3)", "it takes when, name, timeout, attempts, on_failure, writes"),
        ("app.fan_out(len, rates=3)", "did you mean 'rate'?"),
        ("app.derive(conflicts='skip')", "did you mean 'conflict'?"),
        ("app.mirror(copies=len, sources=len)", "did you mean 'source'?"),
        ("app.aggregate(begin='2026-10-01')", "it takes start"),
        ("app.migration('0001', Loan, modes='touch')", "did you mean 'mode'?"),
        ("Policy(atempts=2)", "did you mean 'attempts'?"),
        ("Policy(retries=2)", "it takes timeout_seconds, attempts, backoff_seconds"),
        ("TableShape(indexs={})", "did you mean 'indexes'?"),
        ("IndexShape(projects=())", "did you mean 'project'?"),
    ],
)
def test_an_argument_of_an_unknown_name_is_refused_with_the_one_that_is_meant(
    call: str, said: str
) -> None:
    text = misspelt(call)
    assert said in text
    assert "(mine.py:1): unknown argument" in text
    assert text.startswith((f"{call.partition('(')[0]}(...)", "@app."))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("Policy(attempts='2')", "attempts is a whole number"),
        ("Policy(attempts=2.5)", "attempts is a whole number"),
        ("Policy(attempts=True)", "attempts is a whole number"),
        ("Policy(timeout_seconds='10s')", "timeout_seconds is a number"),
        ("Policy(retry_seconds=None)", "retry_seconds is a number"),
        ("Policy(breaker='off')", "breaker is True or False"),
        ("Policy(on_failure=['park'])", "on_failure is park, block or skip"),
        ("Policy(payload='none')", "payload is whole or keys"),
        ("TableShape(pk_type='X')", "pk_type is S, N or B"),
        ("TableShape(ttl=5)", "ttl is a text or None"),
        ("TableShape(indexes={'GSI1': {'pk': 'x'}})", "by name, each IndexShape(...), as in {'"),
        ("TableShape(indexes=['GSI1'])", "by name, each IndexShape(...), as in {'"),
        ("IndexShape(project='name')", "several, each of them a text, as in [...] or None"),
        ("App(3, table='T')", "name is a text"),
        ("App('shop', table='T', entities=Loan)", "entities is several, as in [...]"),
        ("App('shop', table='T', require_migrations=3)", "a text or several, as in [...]"),
        ("app.on(attempts='3')", "attempts is a whole number or None"),
        ("app.on(writes=Loan)", "writes is several, as in [...] or None"),
        ("app.fan_out(len, inline=True)", "inline is a whole number"),
        ("app.fan_out(len, rate='500')", "rate is a number or None"),
        ("app.derive(name=3)", "name is a text or None"),
        ("app.migration('0001', Loan, repeat='no')", "repeat is True or False"),
        ("app.migration(1, Loan)", "id is a text"),
    ],
)
def test_an_argument_of_another_type_is_refused_with_what_it_takes(call: str, said: str) -> None:
    text = misspelt(call)
    assert said in text
    name, _, given = call[:-1].partition("(")
    shown = text.removeprefix("@").removeprefix(f"{name}(").partition(") (mine.py:1): ")[0]
    # The argument as it was given; an entity is shown as Python does.
    assert given.endswith(shown) or shown.startswith(("name=3", "id=1", "entities=", "writes="))


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"approximate": "no"}, "approximate='no': it is True or False"),
        ({"remove_empty": 1}, "remove_empty=1: it is True or False"),
        ({"onto": "Loan"}, "onto='Loan' is not an entity"),
        ({"type": 3}, "type=3: it is a text"),
    ],
)
def test_a_class_keyword_of_another_type_is_refused_with_what_it_takes(
    keywords: dict[str, Any], said: str
) -> None:
    with pytest.raises(DeclarationError, match=re.escape(said)):

        class Loans(Aggregate[Loan], pk="LOANS#{book}", sk="LOANS", **keywords):
            book: str
            loans: Annotated[int, Count()] = 0


@pytest.mark.parametrize("when", ["paid", True, changed("nobody")])
def test_the_condition_of_a_mirror_is_checked_like_that_of_a_handler(when: Any) -> None:
    def copied(loan: Loan, copy: Loan) -> Set[Loan]: ...

    mirror = an_app().mirror(copies=lambda loan: None, source=lambda copy: None, when=when)
    with pytest.raises(DeclarationError, match=r"test_mistakes.py:\d+\): (when=|.*nobody)"):
        mirror(copied)


def test_a_switch_of_a_sink_or_of_telemetry_is_true_or_false() -> None:
    with pytest.raises(DeclarationError, match=r"'hook': batch='no': it is True or False"):
        Webhook("hook", url="https://example.com", batch="no")  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match=r"Telemetry\(emf='no'\): it is True or False"):
        Telemetry(emf="no")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": 3}, "name=3"),
        ({"pk": 3}, "pk=3"),
        ({"when": True}, "when=True: it is a function"),
    ],
)
def test_an_index_of_something_else_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        Index(**{"name": "GSI1", "pk": "DAY#{day}"} | given)


@pytest.mark.parametrize(
    "call",
    ["Policy(timeout_seconds=0)", "Policy(timeout_seconds=-1)", "Policy(backoff_seconds=-1)"],
)
def test_times_that_no_handler_could_keep_are_refused(call: str) -> None:
    assert misspelt(call).startswith("Policy(")


def test_numbers_and_lists_stand_for_what_they_can_mean() -> None:
    assert Policy(timeout_seconds=3, retry_seconds=1).timeout_seconds == 3
    shape = TableShape(sk=None, indexes={"GSI1": IndexShape(project=["name"])})  # type: ignore[arg-type]
    assert shape.indexes["GSI1"].projection["NonKeyAttributes"] == ["name"]
