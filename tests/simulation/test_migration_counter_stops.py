"""A process is killed, or stands still, at any call, while both sides of what it moves are counted.

Between the steps of a person old and new code count, also beside passes that are half done, and at
stubs. In the end each counter is the sum of all that the engine's records say was added.
"""

from contextlib import suppress
from functools import partial

import pytest

from streamkit.errors import ConfigurationError
from streamkit.migrate.book.state_book import open_book
from streamkit.testing import every_crash, every_freeze
from streamkit.testing.every import chosen
from tests.rigs import Rig
from tests.simulation.counting import COUNTER, KEYS, OldRoom, app_of
from tests.simulation.stepping import AT_ONCE
from tests.simulation.test_migration_stops import SETTINGS, command, work

ITEMS = 2
HALF = 4.0
SAMPLE = 1
"""So many stops of two of the ways; `make stops` plays all of all."""
BOTH_COUNT = frozenset({"ready", "switching", "soaking", "contracting", "closing", "returning"})


class Counters:
    """The application of a harness: it counts on both sides, and knows the sums."""

    def __init__(self, harness):
        self.harness, self.sums, self.turns = harness, [0] * ITEMS, 0
        harness.put(*(OldRoom(user="ann", order_id=f"{n}") for n in range(ITEMS)))

    def phase(self):
        """Return the phase that the migration is in."""
        harness = self.harness
        book = harness._run(open_book(harness.app, harness._aws))
        return harness._run(book.read("0001")).phase

    def count(self, *sides):
        """Add to each counter on each of these sides, every time by another number."""
        for number in range(ITEMS):
            for side in sides:
                self.turns += 1
                self.sums[number] += self.turns
                self.harness._run(self._add(KEYS[side](user="ann", order_id=f"{number}"), side))

    async def _add(self, room, side):
        await self.harness._aws.dynamodb.update_item(
            TableName=self.harness.app.table,
            Key=room.item_key.wire(self.harness.tables.table),
            UpdateExpression="ADD #n :n",
            ExpressionAttributeNames={"#n": COUNTER[side]},
            ExpressionAttributeValues={":n": {"N": f"{self.turns}"}},
        )


LIVES = {
    "to the end": ("counters", ("apply", "switch", "contract")),
    "to the end, and no old code": ("both", ("apply", "switch", AT_ONCE)),
    "taken back after the switch": ("both", ("apply", "switch", "rollback")),
}
LAST = frozenset({"contract", AT_ONCE, "rollback"})
ENDS = {"apply": "ready", "switch": "soaking", "rollback": "rolled back"}


def through(names, harness):
    """Take counters through commands, each one as often as a person has to give it."""
    counters = Counters(harness)
    for name in names:
        counts = ("new",) if name == AT_ONCE else ("old", "new")
        for turn in range(6):
            with suppress(ConfigurationError):  # old code wrote within a day, or it is under way
                harness.operate(partial(command, harness.app, harness.world.clock, name))
            if name in LAST:
                harness.operate(partial(work, harness.app, harness.world.clock, HALF))
                if turn < 2 and counters.phase() in BOTH_COUNT:
                    counters.count(*counts)
            harness.operate(partial(work, harness.app, harness.world.clock, None))
            if counters.phase() == ENDS.get(name, "done"):
                break
            harness.advance("25h")
        if name == "switch":
            counters.count("old", "new")
    side = "old" if "rollback" in names else "new"
    rooms = sorted(harness.scan(KEYS[side]), key=lambda room: room.order_id)
    assert counters.phase() == ENDS.get(names[-1], "done")
    assert [getattr(room, COUNTER[side]) for room in rooms] == counters.sums
    assert len(harness.items()) == ITEMS


def scenario_of(life):
    policy, names = LIVES[life]
    make = partial(Rig, app_of(policy), shards=1, settings=SETTINGS)
    return partial(through, names), make


WAYS = [(every, life) for life in LIVES for every in (every_crash, every_freeze)]


@pytest.mark.parametrize(("every", "life"), chosen(WAYS, 2, seed=9))
def test_what_both_sides_count_counts_once_if_a_process_stops_at_any_call(every, life):
    assert list(every(*scenario_of(life), part="operation", sample=SAMPLE))
