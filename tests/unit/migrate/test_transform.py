"""What a migration makes of one item, and what it is not allowed to make."""

import json
from typing import ClassVar

import pytest

from streamkit import App, DeclarationError, Delete, Entity, Index, Item, Remove, Set
from streamkit.kinds.derive import OWNER
from streamkit.kinds.migration import MigrationOptions
from streamkit.kinds.migration_function import read_migration
from streamkit.migrate.items.marks import mark_of
from streamkit.migrate.items.rewrites import plain, wire
from streamkit.migrate.items.sources import queries_of_parts
from streamkit.migrate.items.transform import Transform, TransformError
from streamkit.model.schema import IndexSchema, TableSchema


def index(name, pk, sk):
    return IndexSchema(name, ((pk, "S"),), ((sk, "S"),), "ALL", frozenset(), is_global=True)


SCHEMA = TableSchema("Shop", "PK", "SK", "S", "S", {"GSI1": index("GSI1", "GSI1PK", "GSI1SK")})


class Order(Entity, pk="C#{user}", sk="#ORDER#{order_id}"):
    user: str
    order_id: str
    status: str = "NEW"
    total: int = 0
    tags: frozenset[str] = frozenset()
    status_day: str | None = None

    by_status: ClassVar = Index("GSI1", pk="S#{status}", sk="O#{order_id}")


class Part(Entity, pk="C#{user}", sk="PART#{order_id}"):
    user: str
    order_id: str


class Other(Entity, pk="C#{user}", sk="OTHER#{order_id}"):
    user: str
    order_id: str


def order(**fields):
    return plain(Order(user="ann", order_id="1", **fields).attributes(SCHEMA))


def transform(function, **options):
    entity = options.pop("entity", Order)
    migration = read_migration("0001", entity, function, MigrationOptions(**options))
    return Transform(migration, SCHEMA)


def test_parameters_are_the_read_set_and_nothing_else_is_looked_at():
    def by_status(status: str) -> Set[Order]:
        return Set(status_day=f"{status}#d")

    rewrite = transform(by_status).of(order(status="PAID") | {"total": "not a number"})
    assert rewrite.sets == {"status_day": "PAID#d"}
    assert rewrite.reads == {"PK", "SK", "status"}


class Worn(Entity, pk="WORN#{name}", sk="WORN"):
    name: str
    clicks: int


class Clicks(Entity, pk="WORN#{name}", sk="CLICKS"):
    name: str
    clicks: int


def worn_by_field(name: str, clicks: int) -> list[Clicks | Remove[Worn]]:
    return [Clicks(name=name, clicks=clicks), Remove("clicks")]


def worn_by_default(name: str, clicks: int | None = None) -> list[Clicks | Remove[Worn]]:
    return [] if clicks is None else worn_by_field(name, clicks)


def worn_whole(worn: Worn) -> list[Clicks | Remove[Worn]]:
    return worn_by_field(worn.name, worn.clicks)


@pytest.mark.parametrize(
    ("function", "collect"),
    [
        (worn_by_field, None),
        (worn_whole, None),
        (worn_by_default, lambda worn: Clicks.query(name=worn.name)),
    ],
)
def test_what_a_split_takes_away_must_not_be_needed_to_read_the_rest(function, collect):
    item = plain(Worn(name="ann", clicks=3).attributes(SCHEMA))
    with pytest.raises(TransformError, match=r"clicks needs a default, such as None"):
        transform(function, mode="split", entity=Worn, collect=collect).of(item)
    rewrite = transform(worn_by_default, mode="split", entity=Worn).of(item)
    assert rewrite.removes == {"clicks"}


def test_an_item_that_is_as_it_should_be_needs_nothing():
    def by_status(status: str) -> Set[Order]:
        return Set(status_day=f"{status}#d")

    assert not transform(by_status).of(order(status_day="NEW#d")).changes_item


def test_what_a_function_of_the_whole_item_looks_at_is_tracked():
    def looks(item: Item) -> Set[Order] | None:
        return Set(total=item["total"] + 1) if "colour" in item else None

    assert transform(looks).of(order()).reads == {"PK", "SK", "colour"}
    assert transform(looks).of(order() | {"colour": "red"}).reads == {"PK", "SK", "colour", "total"}


def test_a_function_that_lists_attributes_has_read_them_all():
    def lists(item: Item) -> Set[Order]:
        return Set(total=len(list(item)))

    image = order()
    assert transform(lists).of(image).reads == image.keys()


def test_an_entity_that_is_returned_is_stored_as_a_put_would_store_it_today():
    def as_it_is(one: Order) -> Order:
        return one

    old = {n: v for n, v in order(status="PAID").items() if n not in ("GSI1PK", "GSI1SK")}
    rewrite = transform(as_it_is).of(old | {"unknown": 1, "GSI1SK": "wrong"})
    assert rewrite.sets == {"GSI1PK": "S#PAID", "GSI1SK": "O#1"}
    assert not rewrite.removes


def test_an_item_whose_fields_build_another_key_is_changed_in_its_place():
    here = {"PK": "C#ANN", "SK": "#ORDER#7", "user": "Ann", "order_id": "7", "status": "NEW"}

    def anew(found: Order) -> Order:
        return Order(**found.model_dump() | {"status": "DONE"})

    def copied(found: Order) -> Order:
        return found.model_copy(update={"status": "DONE"})

    def moved(found: Order) -> Order:
        return found.model_copy(update={"user": "bob"})

    for function in (anew, copied):
        assert transform(function).of(here).sets["status"] == "DONE"
    with pytest.raises(TransformError, match="key changes"):
        transform(moved).of(here)


def test_a_field_of_the_key_is_set_only_to_what_the_key_says():
    def makes(value):
        def function(item: Item) -> Set[Order]:
            return Set(order_id=value)

        return transform(function)

    assert not makes("1").of(order()).changes_item
    assert makes("1").of(order() | {"order_id": "2"}).sets["order_id"] == "1"
    with pytest.raises(TransformError, match=r"Set\(order_id=.+ the item's key changes; .+'rekey'"):
        makes("2").of(order())
    with pytest.raises(TransformError, match="key changes"):
        makes("2").of({n: v for n, v in order().items() if n != "order_id"})


def test_an_attribute_that_is_set_to_none_is_removed_only_if_it_is_there():
    def without(status: str) -> Set[Order]:
        return Set(status_day=None, old_name=None)

    rewrite = transform(without).of(order(status_day="x"))
    assert rewrite.removes == {"status_day"}
    assert transform(without).of(order() | {"old_name": 1}).removes == {"old_name"}


def test_streamkits_own_attributes_are_not_shown_and_do_not_count():
    def lists(item: Item) -> Remove[Order]:
        return Remove(*(name for name in item if name.startswith("_")))

    assert not transform(lists).of(order() | {"_sk_by": "migration:0:x:y"}).changes_item


def test_true_is_not_one():
    def flag(total: int) -> Set[Order]:
        return Set(flag=True)

    assert transform(flag).of(order() | {"flag": 1}).sets == {"flag": True}


def test_a_parameter_without_a_default_must_be_there():
    def by_status(status_day: str) -> Set[Order]:
        return Set(status=status_day)

    def by_default(status_day: str = "d") -> Set[Order]:
        return Set(status=status_day)

    with pytest.raises(TransformError, match="no status_day; give the parameter a default"):
        transform(by_status).of(order())
    assert transform(by_default).of(order()).sets == {"status": "d", "GSI1PK": "S#d"}


@pytest.mark.parametrize(
    ("result", "what"),
    [
        (Set(PK="x"), "key attribute"),
        (Set(GSI1SK=""), "GSI1SK is a key of GSI1"),
        (Set(GSI1SK=3), "GSI1SK is a key of GSI1"),
        (Order(user="bob", order_id="1"), "the item's key changes"),
        (Set(Order.key(user="bob", order_id="1"), total=1), "other items are returned as entities"),
        (Set(note="x" * 500_000), "larger than 400 KB"),
        ("text", "returned a str"),
        ([3], "not an int"),
        ([Set(total=1), Set(total=2)], "its effects contradict each other about total"),
        ([Set(note="x"), Remove("note")], "its effects contradict each other about note"),
        ([Order(user="ann", order_id="1"), Set(total=2)], "contradict each other about total"),
    ],
)
def test_results_that_cannot_be_are_refused_and_say_why(result, what):
    def makes(status: str) -> object:
        return result

    with pytest.raises(TransformError, match=what):
        transform(makes).of(order())


def test_rekey_carries_along_what_the_new_entity_does_not_know_and_reads_all_of_it():
    def part(one: Order) -> Part:
        return Part(user=one.user, order_id=one.order_id)

    image = order() | {"unknown": 7}
    rewrite = transform(part, mode="rekey").of(image)
    (target,) = rewrite.targets
    assert plain(target.item)["unknown"] == 7
    assert "GSI1PK" not in target.item
    assert rewrite.reads >= image.keys()


def test_an_item_that_stands_where_it_belongs_is_no_target():
    def same(one: Order) -> Order:
        return one

    assert transform(same, mode="rekey").of(order()).targets == ()


def test_two_targets_with_one_key_are_refused():
    def twice(user: str, order_id: str) -> list[Part]:
        return [Part(user=user, order_id=order_id)] * 2

    with pytest.raises(TransformError, match="two items with one key"):
        transform(twice, mode="derive").of(order())


def test_an_item_may_be_deleted():
    def gone(status: str) -> Delete[Order] | None:
        return Delete(Order.key(user="ann", order_id="1")) if status == "OLD" else None

    assert transform(gone).of(order(status="OLD")).delete
    assert not transform(gone).of(order()).changes_item


def test_wire_form_and_plain_values_are_the_same_item():
    image = order(tags=frozenset({"b", "a"})) | {"raw": b"\x00", "list": [1, {"a": None}]}
    assert plain(wire(image)) == image


# -- declarations ----------------------------------------------------------------------------------


def good(status: str) -> Set[Order]:
    return Set(status=status)


async def waits(status: str) -> Set[Order]:
    return Set(status=status)


def no_such_field(colour: str) -> Set[Order]:
    return Set(status=colour)


def other_entity(part: Part) -> Part:
    return part


def parts(order: Order) -> list[Part]:
    return []


def two_kinds(order: Order) -> list[Part | Other | Remove[Order]]:
    return []


def whole(order: Order, parts: list[Part]) -> Set[Order]:
    return Set(status="")


UNDONE = {"mode": "split", "collect": lambda _: None, "source": lambda _: None}
COLLECT, SOURCE = r"collect=lambda order: Part\.query", r"source=lambda part: Order\.key"


@pytest.mark.parametrize(
    ("number", "function", "options", "what"),
    [
        ("1", good, {}, "three digits"),
        ("0001", waits, {}, "use def"),
        ("0001", no_such_field, {}, "has no field colour"),
        ("0001", other_entity, {}, "it takes Part, not Order"),
        ("0001", good, {"mode": "sideways"}, "one of in_place"),
        ("0001", good, {"mode": "aggregate"}, "takes an Aggregate"),
        ("0001", good, {"conflict": "overwrite"}, "report or keep"),
        ("0001", good, {"collect": lambda _: None}, "items that are split"),
        (
            "0001",
            good,
            {"mode": "merge", "collect": [Part.query(user="ann")]},
            "takes each as a param",
        ),
        (
            "0001",
            good,
            {"mode": "split", "collect": [Part.query(user="ann")]},
            "function, not list, as",
        ),
        ("0001", good, {"mode": "split", "source": "PART"}, "function, not str, as in"),
        ("0001", good, {"check": True}, "takes a function, not bool"),
        ("0001", good, {"reverse": "back"}, "reverse= takes a function, not str"),
        ("0001", parts, {"mode": "split", "reverse": whole}, f"add {COLLECT}.*, {SOURCE}"),
        ("0001", parts, UNDONE | {"reverse": whole, "source": None}, f"add {SOURCE}"),
        ("0001", two_kinds, UNDONE | {"reverse": whole}, "of one entity, and .* makes Part, Other"),
        ("0001", parts, UNDONE | {"reverse": good}, r"list of its parts, .*parts: list\[Part\]"),
        ("0001", good, {"reverse": no_such_field}, "has no field colour"),
        ("0001", good, {"reverse": waits, "mode": "touch"}, "use def"),
        ("0001", good, {"owner": "x"}, "goes with mode='derive'"),
        ("0001", parts, {"owner": parts, "mode": "derive"}, "owner is a text or None"),
        ("0001", good, {"mode": "rekey", "conflict": "keep"}, "is for mode='derive'"),
        ("0001", good, {"to": "Other"}, "another table goes with"),
    ],
)
def test_declarations_that_do_not_fit_are_refused_at_once(number, function, options, what):
    app = App("shop", table="Shop")
    with pytest.raises(DeclarationError, match=what):
        app.migration(number, Order, **options)(function)


ALL = Part.query(user="ann")


@pytest.mark.parametrize(("found", "count"), [(ALL, 1), ([ALL, ALL], 2), ((ALL,), 1), ([], 0)])
def test_the_parts_of_an_item_are_found_by_a_query_or_by_several(found, count):
    options = MigrationOptions(mode="split", collect=lambda _: found)
    split = read_migration("0001", Order, parts, options)
    assert queries_of_parts(split, Order(user="ann", order_id="1")) == [ALL] * count


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, r"as in Part\.query\(\.\.\.\), or a list of such, not None"),
        ([ALL, "ann"], "or a list of such, not a str"),
        (Order.query(user="ann"), "not a Query of Order"),
        (ALL.limit(3), "leave the index, which trails it, and the limit out"),
    ],
)
def test_what_does_not_find_all_parts_is_an_error_of_the_item_with_what_to_return(found, said):
    options = MigrationOptions(mode="split", collect=lambda _: found)
    split = read_migration("0001", Order, parts, options)
    with pytest.raises(TransformError, match=f"parts.*collect= .*{said}"):
        queries_of_parts(split, Order(user="ann", order_id="1"))


def test_a_number_is_used_once():
    app = App("shop", table="Shop")
    app.migration("0001", Order)(good)
    with pytest.raises(DeclarationError, match="migration 0001 exists already"):
        app.migration("0001", Order)(good)


def test_the_digest_changes_with_the_function():
    def other(status: str) -> Set[Order]:
        return Set(status=status + "!")

    def digest(function):
        return read_migration("0001", Order, function, MigrationOptions()).digest

    assert digest(good) == digest(good)
    assert digest(good) != digest(other)


# -- index keys -----------------------------------------------------------------------------------


class Task(Entity, pk="TASK#{number}", sk="TASK"):
    number: int
    status: str
    agent: str = "nobody"
    by_status: ClassVar = Index(
        "GSI1", pk="S#{status}", sk="{agent}#{number}", when=lambda task: task.agent != "nobody"
    )


def task(**fields):
    return plain(Task(number=1, **fields).attributes(SCHEMA))


@pytest.mark.parametrize(
    ("before", "fields"),
    [
        ({"status": "NEW", "agent": "ann"}, {"status": "OPEN"}),
        ({"status": "NEW", "agent": "ann"}, {"agent": "bob", "status": "OPEN"}),
        ({"status": "NEW", "agent": "ann"}, {"agent": "nobody"}),
        ({"status": "NEW"}, {"agent": "ann"}),
        ({"status": "NEW"}, {"status": "OPEN"}),
    ],
)
def test_an_item_that_is_set_has_the_index_keys_of_one_that_is_put(before, fields):
    def change(number: int) -> Set[Task]:
        return Set(**fields)

    shown = task(**before)
    rewrite = transform(change, entity=Task).of(shown)
    after = {n: v for n, v in {**shown, **rewrite.sets}.items() if n not in rewrite.removes}
    assert after == task(**before | fields)
    if rewrite.sets.keys() & {"GSI1PK", "GSI1SK"} or rewrite.removes:
        assert rewrite.reads >= {"status", "agent"}


@pytest.mark.parametrize("effects", [list, lambda sets: [*sets, *sets]])
def test_several_effects_on_an_item_are_one_and_its_index_keys_follow_them_all(effects):
    def change(number: int) -> list[Set[Task]]:
        return effects([Set(status="OPEN"), Set(agent="bob")])

    shown = task(status="NEW", agent="ann")
    rewrite = transform(change, entity=Task).of(shown)
    assert {**shown, **rewrite.sets} == task(status="OPEN", agent="bob")


def test_an_item_that_loses_a_field_has_the_index_keys_of_one_that_is_put_without_it():
    def change(number: int) -> Remove[Task]:
        return Remove("agent")

    rewrite = transform(change, entity=Task).of(task(status="NEW", agent="ann"))
    assert rewrite.removes == {"agent", "GSI1PK", "GSI1SK"}
    assert rewrite.reads >= {"status", "agent"}


def test_index_keys_that_the_function_sets_itself_are_left():
    def change(number: int) -> Set[Task]:
        return Set(status="OPEN", GSI1PK="mine", GSI1SK="own")

    rewrite = transform(change, entity=Task).of(task(status="NEW", agent="ann"))
    assert rewrite.sets == {"status": "OPEN", "GSI1PK": "mine", "GSI1SK": "own"}


@pytest.mark.parametrize(
    ("sk", "stored", "text"),
    [
        ("S", {"S": "#ORDER#1"}, "#ORDER#1"),
        ("B", {"B": b"#ORDER#1"}, "#ORDER#1"),
        (None, {}, "None"),
    ],
)
def test_a_derived_item_is_marked_as_its_handler_marks_it_whatever_the_sort_key(sk, stored, text):
    def part(order_id: str) -> Part:
        return Part(user="ann", order_id=order_id)

    options = MigrationOptions(mode="derive", owner="parts")
    migration = read_migration("0001", Order, part, options)
    schema = TableSchema("Shop", "PK", sk and "SK", "S", sk, {})
    key = {"PK": {"S": "C#ann"}} | ({"SK": stored} if sk else {})
    name, mark = mark_of(migration, schema, key)
    assert (name, json.loads(mark["S"])) == (OWNER, ["parts", "C#ann", text])  # `Derivation._owner`
