"""Items that are taken whole, and counters that add up: what breaks them; and the code is ours."""

from functools import cache, partial

import pytest

from streamkit import App
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from tests.models.explorer import LARGE, explore, follow, stuck, walks
from tests.models.policies import NAIVE, PolicyModel, PolicyRules
from tests.models.replay import replay
from tests.models.test_families import (
    After,
    Before,
    BeforeA,
    BeforeB,
    Site,
    apart,
    merged,
    moved,
    moved_back,
    opened_with,
    said,
    weight,
)

CHOICES = {"item": {"item": True}, "counter": {"counter": True}}
CHOICES["both"] = CHOICES["item"] | CHOICES["counter"]
BOUNDS = ((1, 1, 1), (1, 1, 2), (2, 1, 1))
"""How often old and new code write, and how many processes there are."""


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("shape", ["rekey", "split", "merge"])
@pytest.mark.parametrize("reverse", [True, False])
def test_an_item_is_what_one_side_wrote_and_each_increment_counts_once(choice, shape, reverse):
    rules = PolicyRules(shape=shape, reverse=reverse, **CHOICES[choice])
    few = (2, 1, True) if shape == "split" else (1, 1, True)
    for old, new, rollback in (few, (2, 1, False)) if LARGE else (few,):
        model = PolicyModel(rules, old=old, new=new, rollback=rollback, subtracts=True)
        found = explore(model)
        assert found.broken == {}
        assert sum(world.phase == "done" for world in found.worlds) > 50


@pytest.mark.parametrize("choice", ["item", "counter"])
def test_two_processes_settle_nothing_twice(choice):
    rules = PolicyRules(**CHOICES[choice])
    assert explore(PolicyModel(rules, old=1, new=1, processes=2, rollback=True)).broken == {}


@pytest.mark.parametrize("choice", CHOICES)
def test_every_family_of_a_policy_can_come_to_an_end_if_people_decide(choice):
    model = PolicyModel(PolicyRules(**CHOICES[choice]), old=1, new=1, rollback=True)
    over = ("done", "rolled back")
    assert (
        stuck(explore(model), lambda world: world.phase in over, lambda step: step[0] != "back")
        is None
    )


def test_sides_that_only_count_are_never_a_conflict():
    model = PolicyModel(PolicyRules(counter=True), old=2, new=2, rollback=True)
    model.acts = ("add",)
    found = explore(model)
    assert found.broken == {}
    assert not any(model.is_open(world) for world in found.worlds)


@cache
def counter_example(name):
    """Return the shortest trace to what a naive rule breaks."""
    rules, invariant = NAIVE[name]
    for old, new, processes in BOUNDS:
        model = PolicyModel(rules, old=old, new=new, processes=processes, subtracts=rules.counter)
        found = explore(model, until=invariant).broken
        if invariant in found:
            return found[invariant]
    return None


@pytest.mark.parametrize("name", NAIVE)
def test_a_policy_that_looks_simpler_breaks(name):
    assert counter_example(name)


# -- the replay ------------------------------------------------------------------------------------


class CountingSite(Site):
    """A table whose writers also count."""

    def __init__(self, app, *more):
        super().__init__(app, *more)
        if app.migrations["0001"].counters:
            one = self.items["old"][-1]
            self.items["old"][-1] = type(one)(**one.model_dump(exclude={"b"}), b=10)

    async def write(self, side, what, place):
        if what not in ("add", "sub"):
            await super().write(side, what, place)
            return
        self.writes += 1
        await self.call(
            "update_item",
            Key=self.items[side][place].item_key.wire(self.schema),
            UpdateExpression="ADD b :one",
            ExpressionAttributeValues={":one": {"N": "1" if what == "add" else "-1"}},
        )


def app_of(rules):
    chosen = {"settle": "item"} if rules.item else {}
    if rules.counter:
        chosen["counters"] = "b"
    if rules.shape == "merge":
        app = App("shop", table="Shop", entities=[BeforeA, BeforeB, After])
        app.migration("0001", BeforeA, mode="merge", reverse=apart, **chosen)(merged)
        return app
    app = App("shop", table="Shop", entities=[Before, After])
    reverse = moved_back if rules.reverse else None
    app.migration("0001", Before, mode="rekey", reverse=reverse, **chosen)(moved)
    return app


def model_of(rules, *, rollback=True):
    return PolicyModel(rules, old=3, new=3, processes=2, rollback=rollback, subtracts=False)


def replayed(traces, rules, *, rollback=True):
    """Let traces of a model happen to a migration with the same policy."""
    model = model_of(rules, rollback=rollback)
    opened = opened_with(app_of(rules), 2, CountingSite)
    return replay(model, traces, opened, partial(said, model))


def counts_often(step):
    return 1.5 if step[1:2] == ("add",) else weight(step)


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("shape", ["rekey", "one way", "merge"])
def test_a_migration_with_a_policy_takes_the_steps_of_the_model(choice, shape):
    kind = "rekey" if shape == "one way" else shape
    rules = PolicyRules(shape=kind, reverse=shape != "one way", **CHOICES[choice])
    model, count = model_of(rules), 10  # more meet an item that is made again as it was agreed
    traces = list(walks(model, count, 40, weigh=counts_often))
    assert replayed(traces, rules) > 12 * count
    ends = [[world.phase for _, world in follow(model, trace)][-1] for trace in traces]
    assert sum(end in ("done", "rolled back") for end in ends) > count // 8


def test_what_two_have_made_by_counting_alike_is_left_to_people():
    async def scenario():
        async with opened_with(app_of(PolicyRules(counter=True)), 2, CountingSite)() as site:
            site.phase = "soaking"
            for side in ("old", "new"):
                await site.write(side, "add", 0)
            return await site.work(site.aws).families.settle(site.key)

    with repeatable(1):
        assert run_virtually(scenario).errors == 1


@pytest.mark.parametrize("name", [name for name in NAIVE if NAIVE[name][0].shape != "split"])
def test_where_a_simpler_policy_breaks_a_migration_does_as_the_model_does(name):
    rules = NAIVE[name][0]
    right = PolicyRules(
        shape=rules.shape, reverse=rules.reverse, item=rules.item, counter=rules.counter
    )
    assert replayed([counter_example(name)], right, rollback=False) > 3
