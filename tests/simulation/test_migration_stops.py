"""A process of a migration is killed, or stands still, at any call of any phase, and goes on later.

Each scenario runs commands and the processes that follow them, one after the other, so that every
phase's calls are among those at which a process may stop: both stages of `contracting` that delete
nothing, the way back after the switch, and a pause.
"""

import json
import random
from contextlib import suppress
from functools import partial

import anyio
import pytest

from streamkit.migrate.book.refusals import AlreadyBegun
from streamkit.migrate.book.state_book import open_book
from streamkit.migrate.book.tallies import TallyBook
from streamkit.migrate.operate import commands
from streamkit.migrate.run.passing import PassPace
from streamkit.migrate.run.running import Runner
from streamkit.migrate.sending.view import Permit
from streamkit.model.copies import COPY
from streamkit.progress.actions import CONTROL_PREFIX
from streamkit.testing import every_crash, every_freeze
from streamkit.testing.chance import repeatable
from streamkit.testing.every import Stop
from streamkit.testing.migrators import SETTINGS
from streamkit.testing.world import Process
from tests.rigs import Rig
from tests.simulation import migrating, operators
from tests.simulation.migrating import OldOrder, Order
from tests.simulation.stepping import AT_ONCE, step_of

ITEMS = 3
SAMPLE = 2


async def command(app, clock, name, aws):
    """Do what a person does, who does it again if the process was killed."""
    if name == "apply":
        with suppress(AlreadyBegun):
            await commands.begin(app, aws, app.migrations["0001"], segments=1, clock=clock)
    else:
        await step_of(name)(app, aws, "0001", clock=clock)


async def work(app, clock, seconds, aws, page=10):
    """Work on the migration until it rests, or for so many seconds."""
    one = app.migrations["0001"]
    runner = Runner(app, aws, one, SETTINGS, clock, random.Random(1), PassPace(1, page, 1))
    with anyio.move_on_after(seconds):
        await runner.run()


def through(names, end, harness):
    """Take the harness's migration through commands; it must end in a phase, its items right."""
    entity = harness.app.migrations["0001"].entity
    harness.put(*(entity(user="ann", order_id=f"{n}", status="PAID") for n in range(ITEMS)))
    clock = harness.world.clock
    for name in names:
        harness.operate(partial(command, harness.app, clock, name))
        seconds = 5.0 if name == "apply" and "pause" in names else None
        harness.operate(partial(work, harness.app, clock, seconds))
    book = harness._run(open_book(harness.app, harness._aws))
    assert harness._run(book.read("0001")).phase == end
    settled(harness, entity, end)


def settled(harness, entity, end):
    items = [i for i in harness.items() if not i["PK"]["S"].startswith(CONTROL_PREFIX)]
    orders = [i for i in items if "order_id" in i]
    moved = entity is OldOrder and end == "done"
    expected = "#ORDER" if moved or entity is Order else "ORDER"
    assert sorted(i["SK"]["S"] for i in orders) == [f"{expected}#{n}" for n in range(ITEMS)]
    assert not any(COPY in item for item in items)
    assert all(item["status"] == {"S": "PAID"} for item in orders)
    if entity is Order:
        right = {"S": "PAID#d1"} if end == "done" else None
        assert all(item.get("status_day") == right for item in orders)


LIVES = {
    "moved to the end": (migrating.rekey, ("apply", "switch", "contract"), "done"),
    "moved, and no old code": (migrating.rekey, ("apply", "switch", AT_ONCE), "done"),
    "taken back after the switch": (
        migrating.rekey,
        ("apply", "switch", "rollback"),
        "rolled back",
    ),
    "taken back before the switch": (migrating.rekey, ("apply", "rollback"), "rolled back"),
    "paused": (migrating.in_place, ("apply", "pause", "resume"), "done"),
    "rewritten and taken back": (migrating.in_place, ("apply", "rollback"), "rolled back"),
}


def scenario_of(life):
    make_app, names, end = LIVES[life]
    return partial(through, names, end), lambda: Rig(make_app(), shards=1, settings=SETTINGS)


@pytest.mark.parametrize("life", list(LIVES))
def test_a_migration_that_is_killed_at_any_call_of_any_phase_comes_to_its_end(life):
    assert list(every_crash(*scenario_of(life), part="operation", sample=SAMPLE))


@pytest.mark.parametrize("life", list(LIVES))
def test_a_migration_that_stands_still_at_any_call_of_any_phase_changes_nothing_later(life):
    assert list(every_freeze(*scenario_of(life), part="operation", sample=SAMPLE))


LISTED = "013349"
"""The orders of a list of keys, one of them twice; there is no order 9, and 2 is not listed."""


async def begin_chosen(app, clock, source, aws):
    given = {"segments": 2, "keys_from": source, "clock": clock}
    with suppress(AlreadyBegun):
        await commands.begin(app, aws, app.migrations["0001"], **given)


def chosen_by_two(source, harness):
    """Let two processes migrate listed orders; one of them may be stopped, and is begun again."""
    app, clock = harness.app, harness.world.clock
    harness.put(*(Order(user="ann", order_id=f"{n}", status="PAID") for n in range(5)))
    harness.advance(900)  # else these are changes that the migration follows
    harness.operate(partial(begin_chosen, app, clock, source))

    async def beside():
        async with harness.world.clients(Process("beside")) as aws:
            await work(app, clock, None, aws, page=2)

    async def both():
        async with anyio.create_task_group() as group:
            group.start_soon(beside)
            await harness.operations.run(partial(work, app, clock, None, page=2))

    harness._run(both())
    book = harness._run(open_book(app, harness._aws))
    assert harness._run(book.read("0001")).phase == "done"
    right = {order.order_id for order in harness.scan(Order) if order.status_day == "PAID#d1"}
    assert right == set(LISTED) - {"9"}
    for phase in ("scanning", "verifying"):
        tally = harness._run(TallyBook(book.store).read(f"0001.1.{phase}.0"))
        assert (tally.scanned, tally.missing, tally.errors) == (len(LISTED), 1, 0), phase


@pytest.fixture
def chosen(tmp_path):
    path = tmp_path / "keys.jsonl"
    keys = (migrating.Order.key(user="ann", order_id=n) for n in LISTED)
    path.write_text("".join(json.dumps({"PK": k.pk, "SK": k.sk}) + "\n" for k in keys))
    return partial(chosen_by_two, str(path)), shared


def test_one_of_two_processes_with_a_list_of_keys_is_killed_at_any_call_and_each_line_counts_once(
    chosen,
):
    assert list(every_crash(*chosen, part="operation", sample=4 * SAMPLE))


def test_one_of_two_processes_with_a_list_of_keys_stands_still_at_any_call_and_counts_no_line_late(
    chosen,
):
    assert list(every_freeze(*chosen, part="operation", sample=4 * SAMPLE))


def test_a_process_that_asks_for_no_phase_before_it_writes_is_found(monkeypatch):
    async def unasked(*_):
        return None

    monkeypatch.setattr(Permit, "require", unasked)
    monkeypatch.setattr(Permit, "settle", unasked)
    scenario, make = scenario_of("rewritten and taken back")
    with make() as harness:
        scenario(harness)
        rewrites = [n for n in harness.operations.writes if n < harness.operations.calls / 2]
    rewrites = rewrites[len(rewrites) // 4 :]  # after those that begin it, and its capture
    played = (Stop("operation", n, "before", "end").play(scenario, make) for n in rewrites)
    with pytest.raises(AssertionError, match="has changed items after the end"):
        list(played)


def shared():
    return Rig(migrating.in_place(), shards=1, settings=SETTINGS)


def is_segment(item):
    return "#cursor#0001." in item["PK"]["S"]


def calls_that_make_segments():
    """Return the numbers of the calls, counted over all operations, and of those before them."""
    with repeatable(0), shared() as harness:
        found = set()

        def saw(sighting):
            made = any(w.old is None and is_segment(w.keys) for w in sighting.writes)
            if made and sighting.actor == "operation":
                found.add(harness.operations.calls - 1)

        harness.freeze(at=1 << 60, part="operation")
        harness.world.watchers.append(saw)
        operators.joined(harness)
    return {number - before for number in found for before in (0, 1)}


def test_a_process_that_stood_still_leaves_no_segments_of_a_pass_that_is_over():
    def outlived(harness):
        operators.joined(harness)
        harness.outlive()
        assert not [item for item in harness.world.items("Shop") if is_segment(item)]

    calls = calls_that_make_segments()
    assert calls
    for call in calls:
        Stop("operation", call, "before", "end").play(outlived, shared)
