"""One of two processes that read an export, an index or a query is killed, or stands still."""

import random
from contextlib import suppress
from functools import partial
from typing import ClassVar

import anyio
import pytest

from streamkit import App, Entity, Index, Set
from streamkit.migrate.book.refusals import AlreadyBegun
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.book.tallies import TallyBook
from streamkit.migrate.operate import commands
from streamkit.migrate.run.passing import PassPace
from streamkit.migrate.run.running import Runner
from streamkit.progress.actions import CONTROL_PREFIX
from streamkit.testing import every_crash, every_freeze
from streamkit.testing.migrators import SETTINGS
from streamkit.testing.world import Process
from tests.exports import export
from tests.rigs import Rig

SAMPLE = 3
OPEN, SHUT = 7, 2


class Ticket(Entity, pk="DESK#{desk}", sk="TICKET#{number}"):
    desk: str
    number: int
    state: str | None = None
    label: str | None = None
    by_state: ClassVar = Index(
        "ByState", pk="{state}", pk_attribute="state", when=lambda one: one.state
    )


def label(number: int) -> Set[Ticket]:
    return Set(label=f"{number}")


def make():
    app = App("desk", table="Shop", entities=[Ticket])
    app.migration("0001", Ticket)(label)
    return Rig(app, shards=1, settings=SETTINGS)


def exported(folder, harness):
    own = [i for i in harness.items() if not i["PK"]["S"].startswith(CONTROL_PREFIX)]
    own = [i for i in own if "state" in i]
    return export(folder, "Shop", own, moment=harness.world.clock.time())


SOURCES = {
    "export": exported,
    "index": lambda _, __: "index:ByState",
    "query of an index": lambda _, __: 'index:ByState:{"state": "OPEN"}',
    "query": lambda _, __: 'table:{"PK": "DESK#a"}',
}


async def begin(app, clock, source, aws):
    given = {"segments": 2, "keys_from": source, "clock": clock}
    with suppress(AlreadyBegun):
        await commands.begin(app, aws, app.migrations["0001"], **given)


async def work(app, clock, aws):
    one, pace = app.migrations["0001"], PassPace(1, 2, 1)
    await Runner(app, aws, one, SETTINGS, clock, random.Random(1), pace).run()


def by_two(source_of, harness):
    """Let two processes migrate chosen tickets; one of them may be stopped, and is begun again."""
    app, clock = harness.app, harness.world.clock
    harness.put(*(Ticket(desk="a", number=n, state="OPEN") for n in range(OPEN)))
    harness.put(*(Ticket(desk="b", number=n) for n in range(10, 10 + SHUT)))
    harness.advance(900)  # else these are changes that the migration follows
    source = source_of(harness)
    harness.operate(partial(begin, app, clock, source))

    async def beside():
        async with harness.world.clients(Process("beside")) as aws:
            await work(app, clock, aws)

    async def both():
        async with anyio.create_task_group() as group:
            group.start_soon(beside)
            await harness.operations.run(partial(work, app, clock))

    harness._run(both())
    book = harness._run(open_book(app, harness._aws))
    assert harness._run(book.read("0001")).phase == "done"
    assert {t.number for t in harness.scan(Ticket) if t.label} == set(range(OPEN))
    for phase in ("scanning", "verifying"):
        tally = harness._run(TallyBook(book.store).read(f"0001.1.{phase}.0"))
        assert (tally.scanned, tally.missing, tally.errors) == (OPEN, 0, 0), phase


@pytest.mark.parametrize("source", list(SOURCES))
def test_one_of_two_processes_that_read_a_source_is_killed_at_any_call_and_each_item_counts_once(
    tmp_path, source
):
    scenario = partial(by_two, partial(SOURCES[source], tmp_path))
    assert list(every_crash(scenario, make, part="operation", sample=SAMPLE))


@pytest.mark.parametrize("source", list(SOURCES))
def test_one_of_two_processes_that_read_a_source_stands_still_at_any_call_and_counts_none_late(
    tmp_path, source
):
    scenario = partial(by_two, partial(SOURCES[source], tmp_path))
    assert list(every_freeze(scenario, make, part="operation", sample=SAMPLE))
