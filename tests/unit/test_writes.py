"""What a handler may write is read from its signature, and held against what it returns."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import pytest

from streamkit import (
    Add,
    AddToSet,
    App,
    Attr,
    Check,
    Completed,
    DeclarationError,
    Delete,
    Effect,
    Entity,
    Inserted,
    Put,
    Send,
    Set,
    UndeclaredWrite,
)
from streamkit.changes import Kind
from streamkit.core.writes import ANY_KIND, check_writes, read_writes


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int
    status: str = ""


class Large(Order):
    """Routed as an order is."""


class Notice(Entity, pk="NOTICE#{number}", sk="NOTICE"):
    number: int
    tags: set[str] = set()


UPSERT = frozenset({Kind.INSERTED, Kind.MODIFIED})
GONE = frozenset({Kind.REMOVED})


@pytest.mark.parametrize(
    ("annotation", "entities"),
    [
        (None, {}),
        (Put[Notice], {Notice: UPSERT}),
        (list[Put[Notice]], {Notice: UPSERT}),
        (Set[Order] | None, {Order: UPSERT}),
        (Sequence[Put[Notice] | Delete[Order]] | None, {Notice: UPSERT, Order: GONE}),
        (Put[Order] | Delete[Order], {Order: ANY_KIND}),
        (tuple[Add[Order], ...], {Order: UPSERT}),
        (Put[Order | Notice], {Order: UPSERT, Notice: UPSERT}),
        (Annotated[AddToSet[Notice], "note"], {Notice: UPSERT}),
        (Check[Order] | Put[Notice] | Completed, {Notice: UPSERT}),
        (Iterable[Effect], None),
        (list[Put[Notice] | Effect], None),
        (Put, None),
        (Put[Any], None),
        (list, None),
        (Any, None),
    ],
)
def test_the_return_annotation_says_which_entities_are_written(annotation, entities):
    assert read_writes(annotation).entities == entities


def test_only_an_annotation_of_none_says_that_there_are_no_effects():
    assert not read_writes(None).effects
    assert read_writes(Put[Notice] | None).effects
    assert read_writes(Check[Order]).effects
    assert read_writes(Any).effects


def test_only_an_annotation_that_names_all_its_effects_says_that_none_is_a_send():
    assert not read_writes(Put[Notice] | None).sends
    assert read_writes(Put[Notice] | Send).sends
    assert read_writes(list[Effect]).sends
    assert read_writes(Any).sends


def app():
    return App("test", table="t")


def one_handler(annotation, **said):
    subject = app()

    def handler(change): ...

    handler.__annotations__ = {"change": Inserted[Order]} | annotation
    subject.on(**said)(handler)
    return subject.handlers[0]


def test_a_handler_without_a_return_annotation_does_not_say():
    assert one_handler({}).writes is None


def test_writes_says_what_the_annotation_does_not():
    handler = one_handler({"return": list[Effect]}, writes=(Notice,))
    assert handler.writes == {Notice}
    assert handler.causes == {Notice: ANY_KIND}
    handler = one_handler({"return": Delete[Notice]}, writes=(Notice, Order))
    assert handler.causes == {Notice: GONE, Order: ANY_KIND}


def test_writes_of_something_that_is_no_entity_is_refused_with_the_handlers_line():
    with pytest.raises(DeclarationError, match=r"handler \(test_writes.py:\d+\): writes='Notice'"):
        one_handler({}, writes=("Notice",))


@pytest.mark.parametrize(
    "said", [{"cycle": "endless"}, {"shadow": "maybe"}, {"delivery": "at_most_once"}]
)
def test_an_unknown_word_is_refused(said):
    (name,) = said
    with pytest.raises(DeclarationError, match=rf"handler \(test_writes.py:\d+\): {name}="):
        one_handler({}, **said)


NOTICE = Put(Notice(number=1))


def test_an_effect_on_another_entity_fails_and_the_error_names_both():
    handler = one_handler({"return": Put[Notice]})
    text = r"handler \(test_writes.py:\d+\) says that it writes Notice, and returned a Set of Order"
    with pytest.raises(UndeclaredWrite, match=text):
        check_writes(handler, [NOTICE, Set(Order.key(number=1), status="x")], "t")
    with pytest.raises(UndeclaredWrite, match="writes nothing, and returned a Put of Notice"):
        check_writes(one_handler({"return": None}), [NOTICE], "t")


def test_a_check_a_subclass_and_another_tables_item_are_not_held_against_it():
    handler = one_handler({"return": Put[Order]})
    check = Check(Notice.key(number=1), Attr("x").exists())
    check_writes(handler, [check, Put(Large(number=1)), NOTICE.to("other")], "t")
    with pytest.raises(UndeclaredWrite):
        check_writes(handler, [NOTICE.to("t")], "t")


def test_a_handler_that_does_not_say_may_write_anything():
    check_writes(one_handler({}), [NOTICE], "t")


def test_a_handler_that_only_sends_is_said_to_take_effect_at_least_once():
    app = App("shop", table="Shop")

    @app.on
    def told(change: Inserted[Order]) -> Send | None: ...

    @app.on
    def written(change: Inserted[Order]) -> list[Send | Put[Order]]: ...

    @app.on
    def vague(change: Inserted[Order]): ...

    assert [handler.delivered for handler in app.handlers] == [
        "at_least_once",
        "exactly_once",
        "exactly_once",
    ]
