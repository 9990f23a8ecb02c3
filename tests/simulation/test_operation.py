"""An operation in phases that is killed or stands still at any call: each step counts once.

The errand has three stages, and is run twice, as a person does who wants it once more. Each stage
counts an item of the application, in one transaction with its step.
"""

from dataclasses import dataclass
from decimal import Decimal
from functools import partial

import pytest

from streamkit import App, Entity
from streamkit.core.tables import survey
from streamkit.effects import Guard
from streamkit.model.conditions import Attr, absent
from streamkit.progress.actions import OURS, Action, Verb, item_ref
from streamkit.progress.control import ControlSpace
from streamkit.progress.cursor import CursorStore
from streamkit.progress.operation import Operation, Step
from streamkit.settings import Settings
from streamkit.testing import every_crash, every_freeze
from streamkit.testing.stops import THAWS
from tests.rigs import Rig

SETTINGS = Settings(poll_ceiling=5, heartbeat=10, lease=30, list_interval=20, look_interval=20)
STAGES = 3
ROUNDS = 2


class Notice(Entity, pk="NOTICE", sk="NOTICE"):
    counted: int


def make():
    return Rig(App("errands", table="Likes", entities=[Notice]), shards=1, settings=SETTINGS)


@dataclass(frozen=True)
class Errand:
    stage: int = 0


class Errands:
    """One process's part of the errand, with the bugs that are planted in it."""

    guarded = True
    along = True

    def __init__(self, store):
        self.store = store
        self.operation = Operation(store, self.read, self.writes)

    @classmethod
    async def opened(cls, app, aws):
        tables = await survey(app, aws)
        # Under the name of a migration: the harness lets a process that stands still go on with its writes.
        return cls(CursorStore(aws.dynamodb, ControlSpace.of(tables.control, app.name, "errands")))

    async def read(self):
        item = await self.store.item("migration", "errand")
        return Errand(0 if item is None else int(item["stage"]["N"]))

    def writes(self, before, after):
        action = self.store.space.update("migration", "errand")
        action.sets["stage"] = {"N": str(after.stage)}
        if self.guarded:
            as_read = Attr("stage").eq(before.stage) if before.stage else absent
            action.guards.append((Guard(as_read), OURS))
        return action

    def counting(self):
        key = {"PK": {"S": "NOTICE"}, "SK": {"S": "NOTICE"}}
        ref = item_ref(self.store.space.schema, key)
        return Action(ref, Verb.UPDATE, adds={"counted": Decimal(1)})

    async def act(self, until, state):
        """Take a stage's step, with what it counts."""
        if state.stage >= until:
            return False
        if not self.along:
            await self.store.write(self.counting())
        along = [self.counting()] if self.along else []
        await self.operation.step(state, Errand(state.stage + 1), along)
        return True


class Unguarded(Errands):
    guarded = False


class ActsFirst(Errands):
    along = False


async def errand(kind, app, until, aws):
    part = await kind.opened(app, aws)
    await part.operation.run(partial(part.act, until))


async def one_more(kind, app, start, aws):
    """Take one step by a decision about the state as it is then."""
    part = await kind.opened(app, aws)

    async def decide(state):
        return Step(Errand(start + 1), [part.counting()]) if state.stage == start else None

    await part.operation.change(decide)


def errands(harness, kind=Errands):
    stages = STAGES * ROUNDS
    for until in range(STAGES, stages + 1, STAGES):
        harness.operate(partial(errand, kind, harness.app, until))
    harness.operate(partial(one_more, kind, harness.app, stages))
    assert harness.get(Notice.key()) == Notice(counted=stages + 1)


def test_a_step_counts_once_at_whichever_call_its_process_is_killed():
    assert len(list(every_crash(errands, make, part="operation"))) == STAGES * ROUNDS + 1


def test_a_step_counts_once_at_whichever_call_its_process_stands_still():
    stops = list(every_freeze(errands, make, part="operation"))
    assert {stop.thaw for stop in stops} == set(THAWS)
    assert len({stop.call for stop in stops}) > 2 * STAGES * ROUNDS


def test_a_step_that_does_not_ask_for_the_state_as_it_was_read_is_found_by_freezes():
    with pytest.raises(AssertionError) as caught:
        list(every_freeze(partial(errands, kind=Unguarded), make, part="operation"))
    assert "frozen" in caught.value.__notes__[0]


def test_an_act_that_is_written_before_its_step_is_found_by_crashes():
    with pytest.raises(AssertionError) as caught:
        list(every_crash(partial(errands, kind=ActsFirst), make, part="operation"))
    assert "killed" in caught.value.__notes__[0]
