"""What one version has begun, the other one ends: rebuilds, rewinds, migrations in every phase.

A process of the first version is killed at one of its calls, or stands still there and thaws while
the other version is at work, or after the end.
"""

from contextlib import suppress

import anyio
import pytest

from streamkit.testing import every_crash, every_freeze
from streamkit.testing.chance import repeatable
from tests.simulation import migrating
from tests.upgrade import things
from tests.upgrade.changeover import Changeover
from tests.upgrade.things import Note, Thing, Things
from tests.upgrade.versions import VERSIONS

LEASE = 30.0


def begun(harness, name, *args, refused=False, **named):
    """Let the version whose turn it is do one of its operations.

    Where it may be `refused`, the process that stood still was at it, or has done it.
    """

    async def work(version, app, aws):
        refusals = (version.part("ConfigurationError"),) if refused else ()
        for _ in range(3):
            with suppress(*refusals):
                return await version.part(name)(app, aws, *args, **named, clock=harness.world.clock)
            await anyio.sleep(5)
        return None

    return harness.operate(work)


def rebuilt(harness):
    """An aggregate that is wrong is built anew, and goes live when its ledger is not needed."""
    harness.put(*(Thing(name=name, n=n) for n, name in enumerate("abc")))
    harness.settle()
    harness.put(Things(things=77))
    begun(
        harness,
        "rebuild_aggregate",
        "Things",
        segments=2,
        lease_seconds=LEASE,
    )
    counted(harness, 3, 2)
    harness.put(Thing(name="d", n=7))
    harness.delete(Thing.key(name="a"))
    harness.settle()
    counted(harness, 3, 7)
    harness.delete(Thing.key(name="d"))
    harness.settle()
    counted(harness, 2, 2)


def counted(harness, number, most):
    found = harness.get(Things.key())
    assert (found.things, found.most) == (number, most)


def rewound(harness):
    for n in (1, 2):
        harness.put(Thing(name="x", n=n))
        harness.settle()
    harness.stop()
    harness.delete(Note.key(name="x"))
    begun(harness, "rewind", None, lease_seconds=LEASE, refused=True)
    harness.put(Thing(name="x", n=3))
    harness.settle()
    assert {note.name: note.n for note in harness.scan(Note)} == {"x": 3}


def redriven(harness):
    """Changes that are parked are redriven; a later one waits behind them."""
    down = harness.down
    down.add("x")
    for n in (1, 2, 3):
        harness.put(Thing(name="x", n=n))
    harness.settle()
    assert len(harness.parked()) == 3
    down.clear()
    harness.put(Thing(name="x", n=4))
    harness.settle()
    begun(harness, "redrive")
    assert not harness.parked()
    harness.put(Thing(name="x", n=5))
    harness.settle()
    assert harness.get(Note.key(name="x")).times == 5


SLICE = 40.0


def step(harness, name):
    begun(harness, name, "0001", refused=True)


def worked(harness, slices=40):
    """Let invocations of a job work on the migration, until nothing happens by itself."""

    async def work(version, app, aws):
        run = version.part("process_slice")
        for _ in range(slices):
            at = await run(app, aws, {"migration": "0001"}, SLICE, clock=harness.world.clock)
            if at.done or at.paused:
                return at
            await anyio.sleep(5)
        return at

    return harness.operate(work)


def begins(harness):
    async def work(version, app, aws):
        with suppress(version.part("AlreadyBegun")):
            await version.part("begin")(
                app, aws, app.migrations["0001"], segments=2, clock=harness.world.clock
            )

    harness.operate(work)


def moved(harness, *last):
    """Items move to another key, with a pause before; `last` follows the switch.

    After each step the other version is refused, and has changed nothing.
    """
    old = [migrating.OldOrder(user="u", order_id=f"{n}") for n in range(3)]
    harness.put(*old)
    harness.advance(900)
    begins(harness)
    step(harness, "pause")
    left_alone(harness)
    assert worked(harness).paused
    step(harness, "resume")
    left_alone(harness)
    assert worked(harness).phase == "ready"
    left_alone(harness)
    step(harness, "switch")
    left_alone(harness)
    assert worked(harness).phase == "soaking"
    left_alone(harness)
    for name in last:
        step(harness, name)
        left_alone(harness)
        at = worked(harness)
    found = [harness.scan(entity) for entity in (migrating.Order, migrating.OldOrder)]
    return at, *({order.order_id for order in orders} for orders in found)


def left_alone(harness):
    """Let the version whose turn it is not try each step, and work on the migration."""

    async def work(version, app, aws):
        for name in ("process_slice", "switch", "contract", "rollback"):
            about = ({"migration": "0001"}, SLICE) if name == "process_slice" else ("0001",)
            with pytest.raises(version.part("ConfigurationError"), match=REFUSED):
                await version.part(name)(app, aws, *about, clock=harness.world.clock)

    before = harness.world.items("Shop")
    harness.change()
    harness.operate(work)
    harness.change()
    assert harness.world.items("Shop") == before


REFUSED = "another definition|kept no pair records"


def moved_for_good(harness):
    at, new, old = moved(harness, "contract")
    assert (at.phase, new, old) == ("done", set("012"), set())


def moved_and_back(harness):
    at, new, old = moved(harness, "rollback")
    assert (at.phase, new, old) == ("rolled back", set(), set("012"))


def rewritten(harness):
    harness.put(*(migrating.Order(user="u", order_id=n) for n in "12"))
    harness.advance(900)
    begins(harness)
    assert worked(harness).phase == "done"
    assert days_of(harness) == {"NEW#d1"}


def rewritten_and_taken_back(harness):
    rewritten(harness)
    step(harness, "rollback")
    assert worked(harness).phase == "rolled back"
    assert days_of(harness) == {None}


def days_of(harness):
    return {order.status_day for order in harness.scan(migrating.Order)}


MOVES = {
    "a move of items": (moved_for_good, migrating, "rekey"),
    "a move of items that is taken back": (moved_and_back, migrating, "rekey"),
}
"""The released version keeps no pair records: neither version goes on with the other one's moves."""
OPERATIONS = {
    "rebuild": (rebuilt, things, "counting"),
    "rewind": (rewound, things, "copying"),
    "redrive": (redriven, things, "counting"),
    "a rewriting": (rewritten, migrating, "in_place"),
    "a rewriting that is taken back": (rewritten_and_taken_back, migrating, "in_place"),
}


def of(operation, first):
    scenario, module, make = (OPERATIONS | MOVES)[operation]

    def made():
        if module is migrating:
            return Changeover(module, make, first)
        down = set()
        harness = Changeover(module, make, first, down=down)
        harness.down = down
        return harness

    return scenario, made


def sample_of(operation, most):
    """Return how many stops are tried: a migration takes its time."""
    return most // 2 if operation.startswith("a ") else most


@pytest.mark.parametrize("first", ["old", "new"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_a_killed_process_of_one_version_has_begun_the_other_one_ends(operation, first):
    assert list(
        every_crash(*of(operation, first), part="operation", sample=sample_of(operation, 2))
    )


@pytest.mark.parametrize("first", ["old", "new"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_process_that_stands_still_does_no_harm_to_the_other_version(operation, first):
    assert list(
        every_freeze(*of(operation, first), part="operation", sample=sample_of(operation, 2))
    )


@pytest.mark.parametrize("first", ["old", "new"])
@pytest.mark.parametrize("operation", MOVES)
def test_a_move_that_one_version_has_begun_is_left_alone_by_the_other(operation, first):
    scenario, made = of(operation, first)
    with repeatable(0), made() as harness:
        scenario(harness)


_MIGRATION = {
    ("migration", f"state.{name}")
    for name in (
        *("declared", "first", "max_errors", "refused"),
        *("keys_from", "keys_tag", "since", "verified.missing", "listed", "bare"),
    )
} | {("begun", name) for name in ("PK", "SK", "kind", "names")}
GAINED = _MIGRATION | {("consumer", "audit"), ("lane", "generation"), ("member", "lately")}
"""Kinds of control items and names in them that the released version does not know.

It goes on beside them: it may leave them as they are, or write the item without them.
"""


@pytest.mark.parametrize("operation", OPERATIONS)
def test_both_versions_store_the_same_names_and_states(operation):
    scenario, _ = of(operation, "new")
    stored = {}
    for first in VERSIONS:
        with repeatable(0), of(operation, first)[1]() as harness:
            scenario(harness)
            names = {(kind, name) for kind, some in harness.stored.items() for name in some}
            stored[first] = names
    assert len(stored["old"]) > 40
    assert stored["old"] - stored["new"] == set()
    assert stored["new"] - stored["old"] <= GAINED
