"""What a migration takes for an item, from the engine's own accounting, step by step.

The items are alone in their table, so that what is not of a control item is of an item; a kilobyte
is a write unit, and four a read unit, of a strongly consistent read. What `plan` computes has to
agree with what was taken.
"""

import random
from collections import Counter
from functools import cache
from pathlib import Path
from typing import ClassVar

import anyio
import pytest

from streamkit import App, Entity, Index, Remove, Set, TableShape
from streamkit.core.table_shape import IndexShape, entities_of
from streamkit.core.tables import survey
from streamkit.migrate.operate import commands
from streamkit.migrate.plan.planning import plan_migration
from streamkit.migrate.run.passing import PAGE_WRITES
from streamkit.migrate.run.running import Runner
from streamkit.migrate.run.sampling import Wanted
from streamkit.progress.actions import CONTROL_PREFIX
from streamkit.testing.chance import repeatable
from streamkit.testing.loop import run_virtually
from streamkit.testing.migrators import SETTINGS
from streamkit.testing.world import Process, World
from tests.simulation import migrating
from tests.simulation.migrating import Order
from tests.simulation.stepping import AT_ONCE, step_of
from tests.simulation.test_migration_rows import site_of

DOCS = Path(__file__).parents[2].joinpath("docs", "migrations.md").read_text()
ITEMS = 60
SMALL, BRIMFUL = 900, 1030
"""Bytes: what the migration adds fits within the same unit of writing, or does not."""
LONG_AGO = 900.0
"""Seconds after which what was written before is not in the capture any more."""


class Deal(Entity, pk="DEAL#{number}", sk="DEAL#{number}"):
    number: int
    text: str
    brand: str | None = None


class Branded(Entity, pk="DEAL#{number}", sk="DEAL#{number}"):
    number: int
    text: str
    brand: str | None = None
    by_brand: ClassVar = Index("GSI1", pk="{brand}", when=lambda deal: deal.brand is not None)


class Bargain(Entity, pk="BARGAIN#{number}", sk="BARGAIN#{number}"):
    number: int
    text: str


class Told(Entity, pk="DEAL#{number}", sk="DEAL#{number}"):
    number: int
    text: str = ""


class Text(Entity, pk="TEXT#{number}", sk="TEXT#{number}"):
    number: int
    text: str


class Label(Entity, pk="DEAL#{number}", sk="LABEL#{number}"):
    number: int
    text: str


class Labelled(Entity, pk="WHOLE#{number}", sk="WHOLE#{number}"):
    number: int
    text: str | None
    label: str | None


def branded(number: int) -> Set[Deal]:
    return Set(brand=f"b{number % 10}")


def in_index(deal: Branded) -> Branded:
    return deal.model_copy(update={"brand": f"b{deal.number % 10}"})


def bargain(deal: Deal) -> Bargain:
    return Bargain(number=deal.number, text=deal.text)


def deal_again(deal: Bargain) -> Deal:
    return Deal(number=deal.number, text=deal.text)


def text_apart(number: int, text: str = "") -> list[Text | Remove[Deal]]:
    return [Text(number=number, text=text), Remove("text")] if text else []


def told_apart(number: int, text: str = "") -> list[Text | Remove[Told]]:
    return [Text(number=number, text=text), Remove("text")] if text else []


def text_back(told: Told, parts: list[Text]) -> Set[Told]:
    return Set(text=parts[0].text if parts else "")


PARTS = {
    "reverse": text_back,
    "collect": lambda told: Text.query(number=told.number),
    "source": lambda text: Told.key(number=text.number),
}


def text_beside(number: int, text: str) -> Text:
    return Text(number=number, text=text)


def whole(deal: Deal | None, label: Label | None) -> Labelled | None:
    found = deal or label
    both = deal and deal.text, label and label.text
    return found and Labelled(number=found.number, text=both[0], label=both[1])


def in_two(whole: Labelled) -> list[Deal | Label]:
    found = [] if whole.text is None else [Deal(number=whole.number, text=whole.text)]
    return found if whole.label is None else [*found, Label(number=whole.number, text=whole.label)]


WAYS = {
    "in_place": (Deal, branded, {"mode": "in_place"}),
    "index": (Branded, in_index, {"mode": "in_place"}),
    "touch": (Deal, branded, {"mode": "touch"}),
    "touch to": (Deal, bargain, {"mode": "touch", "to": "New"}),
    "rekey": (Deal, bargain, {"mode": "rekey", "reverse": deal_again}),
    "to": (Deal, bargain, {"mode": "rekey", "to": "New"}),
    "split": (Deal, text_apart, {"mode": "split"}),
    "split back": (Told, told_apart, {"mode": "split", **PARTS}),
    "merge": (Deal, whole, {"mode": "merge", "reverse": in_two}),
    "derive": (Deal, text_beside, {"mode": "derive"}),
}
for _way in ("rekey", "to", "split", "split back", "merge"):
    WAYS[f"{_way} at once"] = WAYS[_way]


class Till:
    """Adds up what a process takes, by phase: of items, and of control items by operation."""

    def __init__(self, world):
        self.phase = ""
        self.units = Counter()
        self.commits = Counter()
        world.watchers.append(self._saw)

    def _saw(self, sighting):
        call = sighting.call
        if not sighting.actor or call.service != "dynamodb":
            return
        page, text = call.operation == "Scan", str(call.payload)
        if call.operation == "TransactWriteItems" and "'tally'" in text:
            self.commits[self.phase] += 1
            self.units[self.phase, "page"] += call.units["write"]
        elif page or CONTROL_PREFIX not in text or "#pair#" in text:
            for kind in ("read", "write"):
                self.units[self.phase, kind] += call.units[kind] / ITEMS


async def taken(way, size):
    """Run a migration to its end; return what its steps took, and what the plan had said."""
    entity, function, options = WAYS[way]
    world = World.create(3)
    app = App("shop", table="Deals", entities=[entity])
    app.migration("0001", entity, **options)(function)
    migration = app.migrations["0001"]
    keys_only = {"GSI1": IndexShape(project=())}
    async with world.clients() as plain, world.clients(Process("one")) as aws:
        await TableShape(indexes=keys_only).create(plain.dynamodb, "Deals", entities_of(app))
        await TableShape().create(plain.dynamodb, "New", (), stream=False)
        schema = (await survey(app, plain)).table
        for number in range(ITEMS):
            for one in migration.sources:
                item = one(number=number, text="x" * (size - 60)).attributes(schema)
                await plain.dynamodb.put_item(TableName="Deals", Item=item)
        await anyio.sleep(LONG_AGO)
        plan = await plan_migration(
            app, plain, migration, sample=Wanted(share=1.0), rng=random.Random(1)
        )
        till = Till(world)
        await commands.begin(app, plain, migration, segments=1, clock=world.clock)
        for step in ("apply", *(("switch", "contract") if migration.moves else ())):
            if step != "apply":
                last = AT_ONCE if "at once" in way and step == "contract" else step
                await step_of(last)(app, plain, "0001", clock=world.clock)
            runner = Runner(app, aws, migration, SETTINGS, world.clock, random.Random(1))
            adopt = runner._adopting

            def adopted(state, adopt=adopt):
                till.phase = state.phase
                adopt(state)

            runner._adopting = adopted
            await runner.run()
    steps = {one.step: one for one in plan.forecast.steps}
    return till, steps, {one.name: one for one in plan.forecast.choices}


@cache
def costs(way, size=SMALL):
    with repeatable(1):
        return run_virtually(taken, way, size, seed=1)


STEPS = {
    "scan": ("scanning", "catching up"),
    "verify": ("verifying",),
    "switch": ("switching",),
    "contract": ("contracting", "closing"),
}
"""The phases in which the steps of a plan are taken."""


def spent(way, step, kind, size=SMALL):
    till, *_ = costs(way, size)
    return sum(till.units[phase, kind] for phase in STEPS[step])


@pytest.mark.parametrize(
    ("way", "step", "size", "reads", "writes"),
    [
        # A pass reads a kilobyte for a quarter of a unit. The rewrite is one conditional write,
        # and none in the second pass; past a kilobyte it is two.
        ("in_place", "scan", SMALL, 0.25, 1),
        ("in_place", "verify", SMALL, 0.25, 0),
        ("in_place", "scan", BRIMFUL, 0.25, 2),
        # The index's entry is made: a unit more, and none for an index that shows nothing of it.
        ("index", "scan", SMALL, 0.25, 2),
        # The mark, and then what the stream writes; the stream's image needs no read.
        ("touch", "scan", SMALL, 0.25, 2),
        # The mark, and then a transaction of the stream, as that of `rekey` below.
        ("touch to", "scan", SMALL, 2.25, 5),
        # A transaction takes two units for the target, whose place is taken to be free, and two to
        # hold the source to what the pass has read; of what moves, two more for the pair record, and two for
        # the check that pairs are still made.
        ("rekey", "scan", SMALL, 0.25, 8),
        ("to", "scan", SMALL, 0.25, 8),
        ("split", "scan", SMALL, 0.25, 8),
        ("derive", "scan", SMALL, 0.25, 4),
        # Two are stamped, and the one that they become is two kilobytes; each of them leads to a look at all.
        ("merge", "scan", SMALL, 8.5, 12),
        # Both are looked at again, and their record. A table that holds the targets, too, is twice
        # as large.
        ("rekey", "verify", SMALL, 3.5, 0),
        ("to", "verify", SMALL, 3.25, 0),
        ("derive", "verify", SMALL, 2.5, 0),
        # All three are read by both passes; both items are written in a transaction.
        ("rekey", "switch", SMALL, 7.1, 4),
        ("to", "switch", SMALL, 6.6, 4),
        ("split", "switch", SMALL, 7.1, 4),
        # All are compared, the old one becomes a stub, and then the stub goes, each time together
        # with the record.
        ("rekey", "contract", SMALL, 11, 8),
        ("to", "contract", SMALL, 10, 8),
        ("split", "contract", SMALL, 11, 8),
        # The new one is looked at whole, and stays; both old ones become stubs.
        ("merge", "verify", SMALL, 5, 0),
        ("merge", "switch", SMALL, 10.1, 8),
        ("merge", "contract", SMALL, 16, 12),
        # No stub: an old item goes together with the record, in one transaction.
        ("rekey at once", "contract", SMALL, 9.7, 4),
        ("to at once", "contract", SMALL, 8.8, 4),
        ("split at once", "contract", SMALL, 12.1, 4),
        # The query that finds the parts is a unit at each look, also at what is left of the item.
        ("split back", "switch", SMALL, 9.2, 4),
        ("split back", "contract", SMALL, 14.2, 8),
        ("split back at once", "contract", SMALL, 18.4, 4),
        ("merge at once", "contract", SMALL, 17, 6),
    ],
)
def test_an_item_of_a_kilobyte_takes_these_units(way, step, size, reads, writes):
    assert spent(way, step, "read", size) == pytest.approx(reads, abs=0.2)
    assert spent(way, step, "write", size) == pytest.approx(writes, abs=0.05)


@pytest.mark.parametrize("way", list(WAYS))
def test_a_plan_says_what_is_taken(way):
    _, plan, _ = costs(way)
    if "at once" in way:
        del plan["contract"]  # the plan's own steps leave stubs
    for step, cost in plan.items():
        if step in STEPS:
            also = plan["rewrite"] if step == "scan" else None
            reads = cost.reads.value + (also.reads.value if also else 0.0)
            writes = sum(one.value for part in (cost, also) if part for one in part.writes.values())
            assert reads / ITEMS == pytest.approx(spent(way, step, "read"), rel=0.25, abs=0.2)
            assert writes / ITEMS == pytest.approx(spent(way, step, "write"), rel=0.05, abs=0.1)


@pytest.mark.parametrize("way", [way for way in WAYS if "at once" not in way])
def test_a_plan_is_within_a_tenth_of_what_is_taken_as_a_whole(way):
    _, plan, _ = costs(way)
    reads = sum(cost.reads.value for cost in plan.values()) / ITEMS
    writes = sum(one.value for cost in plan.values() for one in cost.writes.values()) / ITEMS
    used = {kind: sum(spent(way, step, kind) for step in STEPS) for kind in ("read", "write")}
    # The control items in so small a table are read, too, in each of two passes.
    assert reads == pytest.approx(used["read"], rel=0.1, abs=0.06)
    assert writes == pytest.approx(used["write"], rel=0.1)


@pytest.mark.parametrize("way", ["rekey", "to", "split", "split back", "merge"])
def test_a_plan_says_what_each_way_to_the_end_takes(way):
    for one, name in ((way, "contract"), (f"{way} at once", "contract --old-code none")):
        choice = costs(one)[2][name]
        for kind in ("read", "write"):
            used = sum(spent(one, step, kind) for step in STEPS)
            said = getattr(choice, f"{kind}s").value / ITEMS
            assert said == pytest.approx(used, rel=0.1)


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("`in_place`", "in_place"),
        ("`touch`", "touch"),
        ("`touch`, `to=`", "touch to"),
        ("`derive`", "derive"),
        ("`rekey`", "rekey"),
        ("`rekey`, `to=`", "to"),
        ("`split`", "split"),
        ("`split`, `collect=` one query", "split back"),
        ("`merge` of two", "merge"),
        ("`rekey`, `--old-code none`", "rekey at once"),
        ("`split`, `--old-code none`", "split at once"),
        ("`split`, `collect=` one query, `--old-code none`", "split back at once"),
        ("`merge` of two, `--old-code none`", "merge at once"),
    ],
)
def test_the_documentation_says_what_is_taken(name, way):
    table = DOCS.partition("For an item of one kilobyte")[2]
    row = next(line for line in table.splitlines() if line.startswith(f"| {name} |"))
    reads, writes = (cell.split(", ") for cell in row.strip("| ").split(" | ")[-2:])
    for kind, said, taking in (
        ("read", reads, STEPS),
        ("write", writes, ("scan", *list(STEPS)[2:])),
    ):
        for step, units in zip(taking, said, strict=False):
            assert spent(way, step, kind) == pytest.approx(float(units), abs=0.2), step


def test_a_page_takes_four_write_units_for_its_segment_and_its_numbers():
    till, *_ = costs("in_place")
    assert till.commits["scanning"] == 1
    assert till.units["scanning", "page"] == PAGE_WRITES


async def conflict():
    app = App("shop", table="Shop", entities=[Order])
    app.migration("0001", Order)(migrating.status_day)
    async with site_of(app) as site:
        order = Order(user="ann", order_id="1")
        await site.put(order)
        read = await site.get(order)
        await site.set_status(order, "PAID")
        site.world.calls.clear()
        site.tally.add(await site.in_place.reconcile(read, live=False))
        return [(call.operation, call.units["write"]) for call in site.world.calls]


def test_a_write_that_comes_between_costs_one_that_is_refused_and_no_read():
    assert run_virtually(conflict) == [("UpdateItem", 1.0), ("UpdateItem", 1.0)]
