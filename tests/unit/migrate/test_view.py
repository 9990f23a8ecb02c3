"""A process writes under what it has read lately, and looks again at what it has written too late."""

from dataclasses import replace

import anyio
import pytest

from streamkit.errors import ConfigurationError
from streamkit.migrate.book.state import State
from streamkit.migrate.sending.calls import DONE, Calls
from streamkit.migrate.sending.rate import Rate
from streamkit.migrate.sending.view import FRESH_SECONDS, MigrationView, Permit, PhaseOver
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import Action, Verb, item_ref
from streamkit.testing.loop import VirtualClock, run_virtually

STATE = State("0001", phase="scanning", run=1)
SHOP = TableSchema("Shop", "PK", None, "S", None, {})
UPDATE = Action(item_ref(SHOP, {"PK": {"S": "1"}}), Verb.UPDATE)


class Table:
    """Takes every update, after so many seconds, and knows the state of a migration."""

    def __init__(self, seconds=0.0):
        self.seconds = seconds
        self.state = STATE
        self.updates = self.reads = 0
        self.seen = []
        self.clock = VirtualClock()
        self.view = MigrationView(STATE, self.read, self.look_again, self.clock)
        self.calls = Calls(self, Rate(self.clock), [SHOP], Permit(self.view, STATE))

    async def update_item(self, **_):
        self.updates += 1
        await anyio.sleep(self.seconds)
        return {}

    async def read(self):
        asked = self.clock.monotonic()
        self.reads += 1
        self.view.adopt(self.state, asked)

    async def look_again(self, places):
        self.seen += places

    async def update(self):
        return await self.calls.write(UPDATE)


async def within_the_time():
    table = Table()
    await anyio.sleep(FRESH_SECONDS - 1)
    table.state = replace(STATE, phase="ready")
    return await table.update(), table.reads


def test_what_was_read_lately_is_not_read_again():
    assert run_virtually(within_the_time) == (DONE, 0)


async def after_the_time(state):
    table = Table()
    await anyio.sleep(FRESH_SECONDS + 1)
    table.state = state
    try:
        await table.update()
    finally:
        assert table.reads == 1
        assert table.updates == (state.course == STATE.course)


@pytest.mark.parametrize("facts", [{"paused": True}, {"attempt": 1}, {"max_writes": 5.0}])
def test_a_state_that_was_read_long_ago_is_read_again_before_a_write(facts):
    run_virtually(after_the_time, replace(STATE, **facts))


@pytest.mark.parametrize("facts", [{"phase": "ready"}, {"run": 2}, {"direction": "back"}])
def test_nothing_is_written_under_a_phase_that_is_over(facts):
    with pytest.raises(PhaseOver) as caught:
        run_virtually(after_the_time, replace(STATE, **facts))
    assert isinstance(caught.value, ConfigurationError)  # what a command says, and no traceback


async def on_its_way(seconds):
    table = Table(seconds)
    table.state = replace(STATE, phase="ready")
    assert await table.update() is DONE
    return table.seen


def test_a_write_that_was_on_its_way_for_long_is_looked_at_again():
    assert run_virtually(on_its_way, FRESH_SECONDS + 1) == [("Shop", UPDATE.ref.key(SHOP))]
    assert run_virtually(on_its_way, FRESH_SECONDS - 1) == []


async def cancelled():
    table = Table(seconds=FRESH_SECONDS + 1)
    table.state = replace(STATE, phase="ready")
    with anyio.move_on_after(FRESH_SECONDS + 0.5):
        await table.update()
    return table.seen


def test_who_is_cancelled_with_a_write_on_its_way_looks_again_first():
    assert run_virtually(cancelled) == [("Shop", UPDATE.ref.key(SHOP))]


async def answered_late():
    table = Table()
    table.view.adopt(STATE, table.clock.monotonic() - FRESH_SECONDS - 1)
    return table.view.is_old


def test_an_answer_is_as_old_as_its_question():
    assert run_virtually(answered_late)
