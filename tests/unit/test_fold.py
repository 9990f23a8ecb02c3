"""Folding many actions into one an item leaves the item as doing them one by one does."""

import random
from copy import deepcopy
from decimal import Decimal
from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.effects import Guard
from streamkit.local.engine import Engine
from streamkit.model.conditions import Attr, absent, present
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import READ, Action, GuardSource, ItemRef, Verb, render
from streamkit.progress.fold import fold, join_read, merge, merge_within
from streamkit.progress.updates import apply
from tests.tables import streamed

REF = ItemRef("t", ("S", "a"), ("S", "a"))
SOURCE = GuardSource("1", "h", 0)


def put(**item):
    return Action(REF, Verb.PUT, item={"pk": {"S": "a"}, **item})


def update(**parts):
    return Action(REF, Verb.UPDATE, **parts)


def guarded(action, condition=absent):
    action.guards.append((Guard(condition), SOURCE))
    return action


number = st.integers(-5, 5).map(lambda n: {"N": str(n)})
members = st.sets(st.sampled_from("xyz"), min_size=1).map(lambda s: {"SS": sorted(s)})
numeric = st.sampled_from(["n", "m"])
sets = st.sampled_from(["s", "t"])
updates = st.one_of(
    st.builds(lambda k, v: update(sets={k: v}), numeric, number),
    st.builds(lambda k, v: update(sets={k: v}), sets, members),
    st.builds(lambda k: update(removes={k}), numeric | sets),
    st.builds(lambda k, v: update(adds={k: Decimal(v)}), numeric, st.integers(-5, 5)),
    st.builds(lambda k, v: update(unions={k: v}), sets, members),
    st.builds(lambda k, v: update(subtractions={k: v}), sets, members),
)
actions = st.one_of(
    updates,
    st.builds(lambda n, s: put(n=n, s=s), number, members),
    st.just(Action(REF, Verb.DELETE)),
)


def normal(item):
    if item is None:
        return None
    return {
        name: {"SS": sorted(value["SS"])} if "SS" in value else value
        for name, value in item.items()
        if name != "pk"
    }


@given(st.lists(actions, min_size=1, max_size=8), st.none() | st.builds(lambda n: {"n": n}, number))
def test_a_fold_does_what_its_actions_do_one_by_one(steps, start):
    one_by_one = start
    folded, base = None, start
    for step in steps:
        one_by_one = apply(step, one_by_one)
        merged = step if folded is None else merge(folded, step)
        if merged is None:  # a cut: what is folded so far is committed
            base, merged = apply(folded, base), step
        folded = merged
    assert normal(apply(folded, base)) == normal(one_by_one)


# -- what DynamoDB makes of it ---------------------------------------------------------------------

X, XY = {"SS": ["x"]}, {"SS": ["x", "y"]}
ALONG = {"b": {"S": "the type"}}


def along(**parts):
    """Return an update that writes another attribute along, as each one does that creates items."""
    return update(**parts | {"sets": ALONG | parts.get("sets", {})})


STEPS = (
    *(along(sets={"a": value}) for value in ({"N": "2"}, {"S": "s"}, X, XY, {"NS": ["1", "2"]})),
    along(removes={"a"}),
    *(along(adds={"a": Decimal(number)}) for number in (3, -3)),
    *(along(unions={"a": members}) for members in (XY, {"NS": ["1.0", "3"]})),
    *(along(subtractions={"a": members}) for members in (X, XY, {"NS": ["1E+0"]})),
    *(put(a=value) for value in ({"N": "2"}, X)),
    Action(REF, Verb.DELETE),
)
STARTS = (None, {}, {"a": {"N": "2"}}, {"a": {"S": "s"}}, {"a": XY}, {"a": {"NS": ["1"]}})
KEY = {"pk": {"S": "a"}, "sk": {"S": "a"}}
SCHEMA = TableSchema("things", "pk", "sk", "S", "S", {})


class Refused(Exception):
    """The table does not take an action: it is invalid, or does not fit the item."""


class Table:
    """A table of the engine, with at most one item."""

    def __init__(self):
        self.engine = Engine(rng=random.Random(1))
        self.engine.call("dynamodb", "CreateTable", streamed("things", "pk", "sk"))

    def after(self, start, *steps):
        """Return the item without its key, after steps from a start.

        Raises:
            Refused: the table does not take one of them.
        """
        first = Action(REF, Verb.DELETE) if start is None else put(**start)
        for step in (first, *steps):
            ((verb, body),) = deepcopy(render(step, SCHEMA)).items()
            if verb == "Put":
                body["Item"] |= KEY
            status, reply = self.engine.call("dynamodb", f"{verb}Item", body)
            if status != 200:
                raise Refused(reply)
        _, found = self.engine.call("dynamodb", "GetItem", {"TableName": "things", "Key": KEY})
        return content(found.get("Item"))


def content(item):
    """Return an item without its key, with each set in one order, numbers as numbers."""
    if item is None:
        return None
    values = {name: value for name, value in item.items() if name not in KEY}
    return {
        name: {
            kind: sorted(map(Decimal, value)) if kind == "NS" else sorted(value)
            for kind, value in wire.items()
        }
        for name, wire in values.items()
    }


def test_an_update_does_to_an_item_what_the_table_does_to_it():
    table = Table()
    for start, step in product(STARTS, STEPS):
        try:
            there = table.after(start, step)
        except Refused:
            with pytest.raises(ValueError, match="types"):
                apply(step, start)
        else:
            assert content(apply(step, start)) == there, (start, step)


def test_a_check_leaves_an_item_as_it_is_and_absent_if_it_is():
    check = guarded(Action(REF, Verb.CHECK), present)
    assert [apply(check, item) for item in STARTS] == [*STARTS]


def test_two_actions_that_merge_do_in_one_expression_what_the_table_does_with_one_by_one():
    """Where it does not take them one by one it must not take both together, either."""
    table, merges = Table(), 0
    for first, second in product(STEPS, STEPS):
        merged = merge(first, second)
        if merged is None:
            continue
        merges += 1
        for start in STARTS:
            try:
                there = table.after(start, first, second)
            except Refused:
                continue
            assert table.after(start, merged) == there, (start, first, second)
    assert merges > 100


def test_adds_sum_up_and_sets_unite():
    merged = fold(
        [
            update(adds={"n": Decimal(2)}, unions={"s": {"SS": ["x"]}}),
            update(adds={"n": Decimal(-3)}, unions={"s": {"SS": ["y", "x"]}}),
        ]
    )
    assert merged[0].adds == {"n": Decimal(-1)}
    assert merged[0].unions == {"s": {"SS": ["x", "y"]}}


def test_nothing_merges_across_a_condition():
    assert merge(update(adds={"n": Decimal(1)}), guarded(put(n={"N": "1"}))) is None


def by(number, **parts):
    """Add one IF the item is there, for the change with this number."""
    action = update(adds={"n": Decimal(1)}, **parts)
    action.guards.append((Guard(present, "omit"), GuardSource(str(number), "h", 0)))
    return action


def named(action):
    return [source.position for _, source in action.guards]


def test_updates_that_only_want_the_item_to_be_there_merge_and_are_all_named():
    merged = merge(merge(by(1), by(2)), by(3))
    assert merged.adds == {"n": Decimal(3)}
    assert named(merged) == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("first", "guards"),
    [
        (put(n={"N": "1"}), []),
        (update(adds={"n": Decimal(1)}), []),
        (guarded(put(n={"N": "1"})), [absent]),
        (guarded(update(adds={"n": Decimal(1)}), Attr("n").eq(1)), [Attr("n").eq(1)]),
    ],
)
def test_what_was_written_before_is_there(first, guards):
    merged = merge(first, by(2))
    assert [guard.condition for guard, _ in merged.guards] == guards
    assert merged.adds == {"n": Decimal(2)} or merged.item["n"] == {"N": "2"}


def test_what_was_deleted_before_is_not_there():
    assert merge(Action(REF, Verb.DELETE), by(2)) is None
    assert merge(Action(REF, Verb.DELETE), guarded(put(n={"N": "1"}), present)) is None


def test_a_check_and_an_update_that_wants_the_item_to_be_there_speak_of_the_same_item():
    merged = merge(guarded(Action(REF, Verb.CHECK), Attr("n").gt(0)), by(2))
    assert [guard.condition for guard, _ in merged.guards] == [Attr("n").gt(0), present]


@pytest.mark.parametrize("conditions", [[absent], [present, Attr("n").eq(1)]])
def test_any_other_condition_is_a_barrier(conditions):
    second = update(adds={"n": Decimal(1)})
    for condition in conditions:
        guarded(second, condition)
    assert merge(update(adds={"n": Decimal(1)}), second) is None
    assert merge(by(1), second) is None


present_or_not = st.tuples(actions, st.booleans())


@given(
    st.lists(present_or_not, min_size=1, max_size=8),
    st.none() | st.builds(lambda n: {"n": n}, number),
)
def test_a_fold_that_is_not_refused_does_what_its_actions_do_one_by_one(steps, start):
    """Where the folded action's conditions hold, so did each one in its turn."""
    folded, one_by_one, held = None, start, True
    for step, wants in steps:
        action = guarded(step.copy(), present) if wants else step
        merged = action if folded is None else merge(folded, action)
        if merged is None:
            return
        held = held and (one_by_one is not None or not wants)
        folded, one_by_one = merged, apply(step, one_by_one)
    if start is None and folded.guards:
        return  # refused: everybody named goes, and it is planned again
    assert held
    assert normal(apply(folded, start)) == normal(one_by_one)


def test_what_follows_a_condition_joins_it_and_keeps_it():
    merged = merge(guarded(put(n={"N": "1"})), update(adds={"n": Decimal(2)}))
    assert merged is not None
    assert merged.item["n"] == {"N": "3"}
    assert [guard.condition for guard, _ in merged.guards] == [absent]


@pytest.mark.parametrize(
    ("first", "second"),
    list(
        permutations(
            [
                {"unions": {"s": {"SS": ["x"]}}},
                {"subtractions": {"s": {"SS": ["y"]}}},
                {"adds": {"s": Decimal(1)}},
            ],
            2,
        )
    ),
    ids=lambda parts: next(iter(parts)),
)
def test_no_two_of_adding_uniting_and_subtracting_share_an_expression(first, second):
    assert merge(update(**first), update(**second)) is None


def test_conditions_of_one_result_all_speak_of_the_item_before_it():
    check = guarded(Action(REF, Verb.CHECK), present)
    merged = merge_within(check, guarded(update(sets={"n": {"N": "1"}}), Attr("n").eq(0)))
    assert merged is not None
    assert merged.verb is Verb.UPDATE
    assert len(merged.guards) == 2


def test_a_read_joins_what_earlier_changes_do_to_the_item():
    read = Action(REF, Verb.CHECK, guards=[(Guard(present, "retry"), GuardSource("2", "h", READ))])
    joined = join_read(update(adds={"n": Decimal(1)}), read)
    assert joined.verb is Verb.UPDATE
    assert joined.guards == read.guards


def test_merging_changes_neither_argument():
    first, second = update(adds={"n": Decimal(1)}), update(adds={"n": Decimal(1)})
    merge(first, second)
    assert first.adds == second.adds == {"n": Decimal(1)}


def test_a_sum_of_more_than_38_digits_is_refused_not_rounded():
    big = update(adds={"n": Decimal(10) ** 37})
    with pytest.raises(ArithmeticError):
        merge(big, update(adds={"n": Decimal("0.01")}))


def test_equal_numbers_of_different_form_are_one_member():
    merged = merge(
        update(unions={"s": {"NS": ["100"]}}), update(unions={"s": {"NS": ["1E+2", "7"]}})
    )
    assert merged is not None
    assert sorted(merged.unions["s"]["NS"]) == ["100", "7"]
