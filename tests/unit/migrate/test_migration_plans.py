"""Plans: what is told of a migration before it runs, and every kind of bug that it must find."""

import itertools
import random
import re
from datetime import date
from typing import ClassVar

import pytest

from streamkit import App, Entity, Index, Set
from streamkit.cli.migration_views import describe_plan
from streamkit.core.table_shape import TableShape
from streamkit.core.tables import survey
from streamkit.errors import ConfigurationError
from streamkit.kinds.migration import Item
from streamkit.migrate.book import limits
from streamkit.migrate.book.limits import Limit
from streamkit.migrate.operate import commands, steps
from streamkit.migrate.plan.planning import plan_migration
from streamkit.migrate.run.running import Runner
from streamkit.migrate.run.sampling import Sample, Wanted, read_wanted, take_sample
from streamkit.migrate.sending.rate import Rate
from streamkit.migrate.verify.mending import list_errors
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import World


class Order(Entity, pk="ORDER#{number}", sk="ORDER"):
    by_day: ClassVar = Index("GSI1", pk="DAY#{day}", sk="{number:08d}")
    number: int
    day: str = "2026-01-01"
    status: str = "NEW"
    tags: frozenset[str] = frozenset()
    label: str | None = None


class Filed(Entity, pk="FILED#{day}", sk="{number:08d}"):
    number: int
    day: str


EVERYTHING = Wanted(share=1.0)


def label(number: int, status: str) -> Set[Order]:
    return Set(label=f"{number}#{status}")


def plan_of(function, orders, *, then=None, **options):
    """Plan a migration of a table that holds these orders; `then` goes on with the clients."""
    ttl = options.pop("ttl", None)
    plan_options = {n: options.pop(n) for n in ("sample", "budget", "diffs") if n in options}
    app = App("shop", table="Shop")
    app.migration("0001", options.pop("entity", Order), **options)(function)

    async def main():
        world = World.create(1)
        async with world.clients() as aws:
            shape = TableShape(ttl=ttl)
            await shape.create(aws.dynamodb, "Shop", (Order, Filed), stream=True)
            tables = await survey(app, aws)
            for order in orders:
                item = order(tables.table) if callable(order) else order
                item = item if isinstance(item, dict) else item.attributes(tables.table)
                await aws.dynamodb.put_item(TableName="Shop", Item=item)
            given = {"sample": EVERYTHING, "clock": world.clock, "rng": random.Random(1)}
            migration = app.migrations["0001"]
            plan = await plan_migration(app, aws, migration, **given | plan_options)
            return plan if then is None else (plan, await then(world, aws, app))

    return run_virtually(main, seed=1)


def kinds_of(plan):
    return {problem.kind for problem in plan.problems if problem.severity == "error"}


def test_a_plan_counts_the_items_that_are_not_right_yet():
    orders = [Order(number=n, label=f"{n}#NEW" if n % 4 else None) for n in range(40)]
    plan = plan_of(label, [*orders, Filed(number=1, day="x")])
    assert plan.ok
    assert (plan.looked_at, plan.items.value) == (41, 41)
    assert plan.matching.value == pytest.approx(40 / 41)
    assert plan.needing.value == 10 / 40
    assert plan.needing.error == 0


# -- planted bugs: each is found, under its own name ------------------------------------------------

_CALLS = itertools.count()


def counts_its_calls(number: int) -> Set[Order]:
    return Set(label=f"{number} {next(_CALLS)}")


def joins_a_set(tags: frozenset[str] = frozenset()) -> Set[Order]:
    return Set(label=",".join(tags))


def joins_a_set_of_an_entity(order: Order) -> Set[Order]:
    return Set(label=",".join(order.tags))


def joins_a_set_of_an_item(item: Item) -> Set[Order]:
    return Set(label=",".join(item["tags"]))


def goes_on_and_on(label: str | None = None) -> Set[Order]:
    return Set(label=f"{label or ''}x")


def grows(number: int) -> Set[Order]:
    return Set(label="x" * 500_000)


def empties_an_index_key(item: Item) -> Set[Order]:
    return Set(GSI1PK="")


def raises(status: str) -> Set[Order]:
    raise RuntimeError(status)


def returns_a_number(status: str) -> int:
    return 3


def files_by_day(order: Order) -> Filed:
    return Filed(number=1, day=order.day)


def refiles(order: Order) -> Order:
    return Order(number=order.number + 1000, day=order.day)


def files_everywhere(order: Order) -> list[Filed]:
    return [Filed(number=1000 * order.number + n, day=order.day) for n in range(98)]


BUGS = {
    "more items than one transaction holds": (files_everywhere, {"too large"}),
    "a function that counts": (counts_its_calls, {"impure", "not idempotent"}),
    "a set in the order of its hashes": (joins_a_set, {"impure"}),
    "the same of an entity": (joins_a_set_of_an_entity, {"impure"}),
    "the same of an item": (joins_a_set_of_an_item, {"impure"}),
    "more to do in what it has made": (goes_on_and_on, {"not idempotent"}),
    "too large an item": (grows, {"too large"}),
    "an empty index key": (empties_an_index_key, {"bad key"}),
    "an exception": (raises, {"transform"}),
    "no effect": (returns_a_number, {"transform"}),
    "two items become one": (files_by_day, {"collision"}),
    "a move without an end": (refiles, {"not idempotent"}),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_plan_finds(bug):
    function, expected = BUGS[bug]
    mode = "rekey" if function in (files_by_day, refiles) else "in_place"
    mode = "split" if function is files_everywhere else mode
    orders = [Order(number=n, tags=frozenset({"red", "blue", "green"})) for n in range(6)]
    plan = plan_of(function, orders, mode=mode)
    assert kinds_of(plan) == expected
    assert not plan.ok


def ahead(item: Item) -> Set[Order]:
    return Set(label=f"{item['label'].removesuffix('!')}!")


def behind(item: Item) -> Set[Order]:
    return Set(label=item["label"][:-1])


def behind_once(item: Item) -> Set[Order]:
    return Set(label=item["label"].removesuffix("!"))


@pytest.mark.parametrize(("reverse", "kinds"), [(behind, {"not idempotent"}), (behind_once, set())])
def test_a_plan_finds_a_reverse_that_changes_its_own_result_again(reverse, kinds):
    """A rollback looks at an item more than once: each look would take another letter away."""
    items = [wide(n, 0) | {"label": {"S": "label"}} for n in range(5)]
    assert kinds_of(plan_of(ahead, items, reverse=reverse)) == kinds


def wide(number, names, *, sk="ORDER", start="a"):
    """Return an item with so many attributes that its entity does not know."""
    item = {f"{start}_{one:03d}": {"S": "x"} for one in range(names)}
    return {"PK": {"S": f"ORDER#{number}"}, "SK": {"S": sk}, "number": {"N": f"{number}"}} | item


async def migrated(world, aws, app):
    """Run the migration; return the numbers of the items that failed."""
    await commands.begin(app, aws, app.migrations["0001"], segments=1, clock=world.clock)
    runner = Runner(app, aws, app.migrations["0001"], clock=world.clock, rng=random.Random(1))
    await runner.run()
    found = await list_errors(app, aws, "0001")
    return {int(one.key["PK"]["S"].rpartition("#")[2]) for one in found}


def renamed(order: Order) -> Filed:
    return Filed(number=order.number, day=order.day)


def test_a_plan_finds_the_items_with_more_attributes_than_one_condition_holds():
    widths = [10, 60, 100, 120, 140, 160, 200, 300]
    said, items = set(), [wide(n, names) for n, names in enumerate(widths)]
    for number, item in enumerate(items):
        plan = plan_of(renamed, [item], mode="rekey")
        assert kinds_of(plan) <= {"too large"}
        said |= {number} if kinds_of(plan) else set()
    plan, failed = plan_of(renamed, items, mode="rekey", then=migrated)
    assert [one.items for one in plan.problems if one.kind == "too large"] == [len(said)]
    assert min(said) > 1
    assert failed
    assert failed <= said
    assert said - failed <= {min(said)}  # a later write, of both sides, names more than the first


class Half(Entity, pk="ORDER#{number}", sk="ORDER"):
    number: int


class OtherHalf(Entity, pk="ORDER#{number}", sk="OTHER"):
    number: int


class Both(Entity, pk="BOTH#{number}", sk="BOTH"):
    number: int


def joined(half: Half | None, other: OtherHalf | None) -> Both | None:
    found = half or other
    return found and Both(number=found.number)


def halves(both: Both) -> list[Half | OtherHalf]:
    return [Half(number=both.number), OtherHalf(number=both.number)]


@pytest.mark.parametrize(("names", "wrong"), [(20, set()), (75, {"too large"})])
def test_a_plan_looks_at_all_items_that_become_one(names, wrong):
    one, other = wide(1, names), wide(1, names, sk="OTHER", start="b")
    plans = [
        plan_of(joined, items, entity=Half, mode="merge", reverse=halves)
        for items in ([one], [one, other])
    ]
    found = [{p.kind for p in plan.problems if p.kind == "too large"} for plan in plans]
    assert found == [set(), wrong]


def test_an_attribute_that_no_entity_knows_is_given_back_to_the_item_that_has_it():
    other = wide(1, 1, sk="OTHER")
    assert not kinds_of(plan_of(joined, [other], entity=Half, mode="merge", reverse=halves))


def test_a_plan_names_the_failing_class_and_never_item_data():
    plan = plan_of(raises, [Order(number=n, status="SECRET") for n in range(8)])
    (problem,) = [problem for problem in plan.problems if problem.kind == "transform"]
    assert (problem.text, problem.items, problem.share) == (
        f"RuntimeError at test_migration_plans.py:{raises.__code__.co_firstlineno + 1} in raises",
        8,
        1.0,
    )
    assert len(problem.examples) == 5
    assert "SECRET" not in str(plan.to_dict())


def test_a_reverse_that_loses_something_is_found():
    def back(label: str | None = None) -> list:
        return [Set(label=None), Set(day="2020-01-01")]

    plan = plan_of(label, [Order(number=1)], reverse=back)
    (problem,) = [problem for problem in plan.problems if problem.kind == "round trip"]
    assert problem.text == "reverse= returns another GSI1PK, day"


def test_a_collect_that_returns_no_query_is_found():
    def filed(order: Order) -> list[Filed]:
        return [Filed(number=order.number, day=order.day)]

    def undone(order: Order, parts: list[Filed]) -> Set[Order]:
        return Set(status=order.status)

    options = {"mode": "split", "reverse": undone, "source": lambda _: None}
    plan = plan_of(filed, [Order(number=1)], collect=lambda _: 5, **options)
    (found,) = [p for p in plan.problems if p.kind == "reverse"]
    assert "collect= returns a query of the parts" in found.text


def test_a_reverse_that_raises_is_found():
    def back(label: str | None = None) -> Set[Order]:
        raise LookupError(label)

    plan = plan_of(label, [Order(number=1)], reverse=back)
    (said,) = [p.text for p in plan.problems if p.kind == "reverse"]
    line = back.__code__.co_firstlineno + 1
    assert said == f"LookupError at test_migration_plans.py:{line} in back"


def test_items_that_wait_for_their_deletion_are_a_warning():
    def dated(number: int) -> Set[Order]:
        return Set(label="x", expires=1)

    old = Order(number=1).attributes
    plan = plan_of(dated, [lambda schema: old(schema) | {"expires": {"N": "5"}}], ttl="expires")
    kinds = {p.kind for p in plan.problems if p.severity == "warning"}
    assert {"expired", "expiry"} <= kinds
    assert plan.ok


def test_a_reverse_that_gives_back_what_there_was_is_fine():
    def back(label: str | None = None) -> Set[Order]:
        return Set(label=None)

    assert plan_of(label, [Order(number=1)], reverse=back).ok


def file(order: Order) -> Filed:
    return Filed(number=order.number, day=order.day)


def test_a_rekey_is_tried_there_and_back():
    def forgets(filed: Filed) -> Order:
        return Order(number=filed.number, day="2020-01-01")

    def right(filed: Filed) -> Order:
        return Order(number=filed.number, day=filed.day)

    def plain(order: Order) -> Filed:
        return Filed(number=order.number, day=order.day)

    orders = [Order(number=1)]
    assert "round trip" in kinds_of(plan_of(plain, orders, mode="rekey", reverse=forgets))
    found = plan_of(plain, orders, mode="rekey", reverse=right)
    assert "round trip" not in kinds_of(found)


def test_an_item_in_a_targets_place_is_a_conflict():
    there = {"PK": {"S": "FILED#x"}, "SK": {"S": "00000001"}, "what": {"S": "another"}}
    plan = plan_of(file, [Order(number=1, day="x"), Order(number=2, day="x"), there], mode="rekey")
    (problem,) = [problem for problem in plan.problems if problem.kind == "conflict"]
    assert problem.items == 1


def test_a_function_that_names_the_day_is_suspected():
    def dated(number: int) -> Set[Order]:
        return Set(label=date.today().isoformat())  # noqa: DTZ011 - the bug that is planted

    plan = plan_of(dated, [Order(number=1)])
    assert [p.text for p in plan.problems if p.kind == "impure" and "'today'" in p.text]


def test_a_table_that_cannot_be_restored_is_a_warning():
    plan = plan_of(label, [Order(number=1)])
    assert [p.kind for p in plan.problems if p.severity == "warning"] == ["recovery"]


def test_what_comes_first_and_what_was_begun_is_said():
    async def again(world, aws, app):
        await _run(world, aws, app)
        app.migration("0002", Order)(lambda number: None)
        app.migration("0003", Order)(lambda number: None)
        clock, rng = world.clock, random.Random(1)
        plans = [
            await plan_migration(app, aws, app.migrations[number], clock=clock, rng=rng)
            for number in ("0001", "0003")
        ]
        return [{problem.kind for problem in plan.problems} for plan in plans]

    _, (begun, later) = plan_of(label, [Order(number=1)], then=again)
    assert "begun" in begun
    assert "order" in later


def test_a_share_is_of_the_scarcest_that_is_provisioned():
    async def main():
        world = World.create(1)
        async with world.clients() as aws:
            app = App("shop", table="Shop")
            table = TableShape().create_table("Shop", (Order,), stream=True)
            table |= {"BillingMode": "PROVISIONED", "ProvisionedThroughput": _units(100, 80)}
            for index in table["GlobalSecondaryIndexes"]:
                index["ProvisionedThroughput"] = _units(100, 30)
            await aws.dynamodb.create_table(**table)
            return await limits.share_of(app, aws, 0.5)

    assert run_virtually(main, seed=1) == limits.Limit(max_reads=50, max_writes=15)


def _units(reads, writes):
    return {"ReadCapacityUnits": reads, "WriteCapacityUnits": writes}


# -- what it takes ---------------------------------------------------------------------------------


def _counted(world, runner):
    """Return what counts the units of a process's calls for items."""
    taken = Rate(world.clock)
    charge = runner.rate.charge

    def both(consumed, kind="read", *, usual=True):
        charge(consumed, kind, usual=usual)
        if usual:  # of an item; what the migration writes of itself says nothing of these
            taken.charge(consumed, kind)

    runner.rate.charge = both
    return taken


async def _run(world, aws, app):
    """Run the migration, and return the write units of its calls for items, by index."""
    migration = app.migrations["0001"]
    await commands.begin(app, aws, migration, segments=4, clock=world.clock)
    runner = Runner(app, aws, migration, clock=world.clock, rng=random.Random(1))
    taken = _counted(world, runner)
    state = await runner.run()
    assert state.phase in ("done", "ready")
    return taken


@pytest.mark.parametrize("size", [10, 3000])
def test_units_are_those_that_the_engine_counts(size):
    orders = [Order(number=n, status="x" * size) for n in range(30)]
    plan, rate = plan_of(label, orders, then=_run)
    rewrite = {step.step: step for step in plan.forecast.steps}["rewrite"]
    assert {name: one.value for name, one in rewrite.writes.items()} == rate.writes


def test_units_of_pairs_are_those_that_the_engine_counts():
    orders = [Order(number=n, status="x" * 3000) for n in range(30)]
    plan, rate = plan_of(file, orders, then=_run, mode="rekey")
    rewrite = {step.step: step for step in plan.forecast.steps}["rewrite"]
    assert rewrite.writes[""].value == pytest.approx(rate.writes[""], rel=0.02)


async def _switch(world, aws, app):
    """Run the migration and switch it; return the units that it read then, and its passes."""
    await _run(world, aws, app)
    await steps.switch(app, aws, "0001", clock=world.clock)
    runner = Runner(app, aws, app.migrations["0001"], clock=world.clock, rng=random.Random(1))
    taken = _counted(world, runner)
    said = [entry.what for entry in (await runner.run()).audit]
    passes = 1 + said[said.index("switch") :].count("once more")
    return taken.reads, passes


def test_the_price_of_one_pass_of_a_switch_is_that_which_the_engine_counts(capsys):
    orders = [Order(number=n, status="x" * 3000) for n in range(60)]
    plan, (reads, passes) = plan_of(file, orders, then=_switch, mode="rekey")
    assert plan.forecast.one_pass.value == pytest.approx(reads / passes, rel=0.1)
    capsys.readouterr()
    describe_plan(plan)
    assert re.search("one pass of `switch` reads .* up to 6 passes", capsys.readouterr().out)
    assert plan_of(label, orders).forecast.one_pass is None


def test_the_time_follows_from_the_scarcest_units():
    orders = [Order(number=n) for n in range(50)]
    budget = Limit(max_reads=1000, max_writes=2)
    plan = plan_of(label, orders, budget=budget)
    found = {step.step: step for step in plan.forecast.steps}
    writes = sum(found[name].writes[""].value for name in ("scan", "rewrite", "verify"))
    assert plan.forecast.seconds == pytest.approx(writes / 2)


def test_a_diff_shows_attributes_and_hides_keys(capsys):
    plan = plan_of(label, [Order(number=7)], diffs=1)
    (diff,) = plan.diffs
    assert diff.lines == (("+", "label: '7#NEW'"),)
    assert "ORDER#7" not in diff.item
    capsys.readouterr()
    describe_plan(plan)
    assert capsys.readouterr().out.count("  + label: '7#NEW'") == 1


# -- samples ---------------------------------------------------------------------------------------


def test_what_differs_between_parts_is_the_error():
    sample = Sample(100, tuple([None] * 4))
    assert sample.total_of([5.0, 5.0, 5.0, 5.0]).error == 0
    assert sample.total_of([0.0, 10.0, 0.0, 10.0]).value == 500
    assert 500 < sample.total_of([0.0, 10.0, 0.0, 10.0]).error < 600
    assert Sample(4, tuple([None] * 4)).total_of([0.0, 10.0, 0.0, 10.0]).error == 0


def test_nineteen_in_twenty_samples_hold_the_truth():
    rng = random.Random(3)
    held = 0
    amounts = [rng.expovariate(1 / 50) for _ in range(400)]
    for _ in range(200):
        parts = rng.sample(amounts, 40)
        found = Sample(400, tuple([None] * 40)).total_of(parts)
        held += abs(found.value - sum(amounts)) <= found.error
    assert 175 <= held <= 200


def test_a_sample_that_turns_out_too_large_is_cut_finer():
    async def main():
        world = World.create(1)
        async with world.clients() as aws:
            await TableShape().create(aws.dynamodb, "Shop", (Order,), stream=True)
            schema = (await survey(App("shop", table="Shop"), aws)).table
            for number in range(600):
                item = Order(number=number).attributes(schema)
                await aws.dynamodb.put_item(TableName="Shop", Item=item)
            wanted = Wanted(items=20)
            return await take_sample(aws.dynamodb.scan, "Shop", wanted, random.Random(1), items=0)

    sample = run_virtually(main, seed=1)
    assert sample.total > 20
    assert sample.scanned <= 80


@pytest.mark.parametrize("text", ["0", "0%", "101%", "x", "-5%"])
def test_a_sample_is_a_share_or_a_number(text):
    with pytest.raises(ConfigurationError):
        read_wanted(text)
    assert read_wanted("5%") == Wanted(share=0.05)
    assert read_wanted("200") == Wanted(items=200)


def test_items_whose_fields_build_another_key_are_told_of():
    def line(schema):
        return Order(number=1).attributes(schema) | {"PK": {"S": "ORDER#1#LINE#1"}}

    plan = plan_of(label, [Order(number=1), line])
    (found,) = [problem for problem in plan.problems if problem.kind == "key"]
    assert (found.severity, found.items) == ("warning", 1)
    assert "build another key" in found.text


def test_items_that_may_be_of_another_type_are_told_of():
    line = {"PK": {"S": "ORDER#1"}, "SK": {"S": "ORDER#1#LINE#1"}}

    class Sorted(Entity, pk="ORDER#{number}", sk="ORDER#{name}"):
        number: int
        name: str
        label: str | None = None

    def name_it(name: str = "") -> Set[Sorted]:
        return Set(label="x")

    plan = plan_of(name_it, [line], entity=Sorted)
    (found,) = [problem for problem in plan.problems if problem.kind == "key"]
    assert "may be of another type" in found.text
