"""An operation's state moves by one conditional write, which counts once whatever becomes of it."""

import json
import random
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace

import anyio
import pytest

from streamkit.aws import connect
from streamkit.effects import Guard
from streamkit.errors import ConfigurationError, InvariantError, LeaseLost
from streamkit.local.engine import Engine
from streamkit.local.transport import session_class
from streamkit.model.conditions import Attr, absent, present
from streamkit.model.schema import TableSchema
from streamkit.progress.actions import OURS, Action, Verb
from streamkit.progress.control import ControlSpace
from streamkit.progress.cursor import CursorStore
from streamkit.progress.operation import AuditEntry, Operation, Refusal, Step, noted, read_audit
from streamkit.testing.loop import run_virtually

SCHEMA = TableSchema("shop", "pk", None, "S", None, {})
TABLE = {
    "TableName": "shop",
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
    "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
    "BillingMode": "PAY_PER_REQUEST",
}


@dataclass(frozen=True)
class Errand:
    """Where an errand stands, and which process took it there."""

    stage: int = 0
    by: str = ""


def errand(store):
    async def read():
        item = await store.item("errand")
        return Errand() if item is None else Errand(int(item["stage"]["N"]), item["by"]["S"])

    def writes(before, after):
        action = store.space.update("errand")
        action.sets |= {"stage": {"N": str(after.stage)}, "by": {"S": after.by}}
        as_read = Attr("stage").eq(before.stage) if before.stage else absent
        action.guards.append((Guard(as_read), OURS))
        return action

    return Operation(store, read, writes)


@asynccontextmanager
async def opened(**transport):
    engine = Engine(rng=random.Random(1))
    engine.call("dynamodb", "CreateTable", TABLE)
    async with connect(http_session=session_class(engine, **transport)) as aws:
        yield CursorStore(aws.dynamodb, ControlSpace.of(SCHEMA, "app", "label"))


@pytest.fixture
async def store():
    async with opened() as store:
        yield store


def needs(store, name):
    check = Action(store.space.ref(name), Verb.CHECK)
    check.guards.append((Guard(present), OURS))
    return check


# -- one step --------------------------------------------------------------------------------------


async def test_of_two_steps_from_one_state_the_second_is_refused_and_writes_nothing(store):
    operation = errand(store)
    assert await operation.step(Errand(), Errand(1, "me")) == Errand(1, "me")
    with pytest.raises(LeaseLost):
        await operation.step(Errand(), Errand(1, "other"))
    assert await operation.read() == Errand(1, "me")


@pytest.mark.parametrize("along", [False, True])
async def test_a_step_whose_reply_was_lost_was_taken(along):
    def lose(apply):
        response = apply()
        lost.append(response.status)
        return type(response)(500, b'{"__type":"com.amazonaws#InternalServerError"}')

    async def intercept(call, apply):
        steps = call.operation in ("UpdateItem", "TransactWriteItems") and not lost
        return lose(apply) if steps else apply()

    lost = []
    async with opened(intercept=intercept) as store:
        beside = [store.space.put({}, "beside")] if along else []
        assert await errand(store).step(Errand(), Errand(1, "me"), beside) == Errand(1, "me")
        assert lost == [200]


async def test_what_goes_along_is_written_with_the_step_or_not_at_all(store):
    operation, beside = errand(store), [store.space.put({}, "beside")]
    with pytest.raises(LeaseLost):
        await operation.step(Errand(1), Errand(2), beside)
    assert await store.item("beside") is None
    await operation.step(Errand(), Errand(1), beside)
    assert await store.item("beside") is not None


async def test_a_step_is_refused_if_a_condition_of_what_goes_along_does_not_hold(store):
    with pytest.raises(LeaseLost):
        await errand(store).step(Errand(), Errand(1), [needs(store, "permit")])
    assert await errand(store).read() == Errand()


async def test_a_step_that_can_never_be_written_is_not_taken_for_one_that_came_too_late(store):
    broken = store.space.update("beside")
    broken.sets["far"] = {"N": "1e999"}
    with pytest.raises(InvariantError, match="errand cannot take this step"):
        await errand(store).step(Errand(), Errand(1), [broken])


# -- a change --------------------------------------------------------------------------------------


async def test_a_change_is_decided_again_about_what_others_have_written_meanwhile(store):
    operation, asked = errand(store), []

    async def decide(state):
        asked.append(state)
        if len(asked) == 1:
            await operation.step(state, Errand(5, "other"))
        return Step(Errand(state.stage + 1, "me"))

    assert await operation.change(decide) == Errand(6, "me")
    assert asked == [Errand(), Errand(5, "other")]


async def test_a_change_is_decided_about_the_state_that_was_seen_and_not_read_again(store):
    operation = errand(store)
    await operation.step(Errand(), Errand(1, "other"))
    asked = []

    async def decide(state):
        asked.append(state)
        return Step(Errand(state.stage + 1, "me"))

    assert await operation.change(decide, seen=Errand()) == Errand(2, "me")
    assert asked == [Errand(), Errand(1, "other")]


async def test_a_change_that_is_not_wanted_any_more_writes_nothing(store):
    async def decide(_):
        return None

    assert await errand(store).change(decide) == Errand()
    assert await store.item("errand") is None


async def test_what_a_decision_raises_ends_a_change(store):
    async def decide(_):
        raise LeaseLost("the errand is another one by now")

    with pytest.raises(LeaseLost, match="another one"):
        await errand(store).change(decide)


# -- a run -----------------------------------------------------------------------------------------


async def test_a_run_goes_on_where_another_process_has_left_it_until_nothing_is_left_to_do(store):
    operation, acted = errand(store), []
    await operation.step(Errand(), Errand(2, "killed"))

    async def act(state):
        if state.stage == 4:
            return False
        acted.append(state.stage)
        await operation.step(state, Errand(state.stage + 1, "me"))
        return True

    assert await operation.run(act) == Errand(4, "me")
    assert acted == [2, 3]


async def test_a_run_looks_again_when_another_process_took_the_step(store):
    operation = errand(store)

    async def act(state):
        if not state.stage:
            await operation.step(state, Errand(1, "other"))
            await operation.step(state, Errand(1, "me"))
        return False

    assert await operation.run(act) == Errand(1, "other")


# -- what people read ------------------------------------------------------------------------------


def test_a_trail_keeps_the_newest_entries_and_is_read_as_it_was_written():
    trail = ()
    for at in range(5):
        trail = noted(trail, AuditEntry(at, "ann@host", f"step {at}"), most=3)
    assert [entry.at for entry in trail] == [2, 3, 4]
    assert read_audit([{"at": 2, "by": "ann@host", "what": "step 2"}]) == trail[:1]


def test_a_refusal_names_every_reason_and_is_none_without_one():
    Refusal.raise_for([])
    with pytest.raises(ConfigurationError) as refused:
        Refusal.raise_for(reason for reason in ("workers are alive", "changes are parked"))
    assert refused.value.reasons == ["workers are alive", "changes are parked"]
    assert str(refused.value) == "workers are alive\nchanges are parked"


def test_steps_of_a_paused_operation_wait_until_it_is_resumed():
    run_virtually(waited)


async def waited():
    looks, held = [], [True, True, False, False]

    def is_held(state):
        looks.append(state)
        return held.pop(0)

    async def once(state):
        return Step(Errand(1, "me")) if not state.stage else None

    async with opened() as store:
        operation = replace(errand(store), held=is_held)
        assert await operation.change(once) == Errand(1, "me")
    assert len(looks) == 3


async def test_a_process_that_has_to_stop_does_not_wait_for_the_end_of_a_pause(store):
    stopping = anyio.Event()
    stopping.set()
    operation = replace(errand(store), held=lambda _: True)

    async def act(_):
        return False

    assert await operation.run(act, stopping) == Errand()


# -- commands --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wish:
    """What people want, and how often they have said so; a process steps, too."""

    on: bool = True
    stage: int = 0
    commands: int = 0
    audit: tuple[AuditEntry, ...] = ()

    def commanded(self, said):
        return replace(self, commands=self.commands + 1, audit=(*self.audit, said))


def wish_of(found):
    return Wish(**found | {"audit": read_audit(found["audit"])})


def wishes(store):
    async def read():
        item = await store.item("wish")
        return wish_of(json.loads(item["wish"]["S"])) if item else Wish()

    def writes(before, after):
        action = store.space.update("wish")
        action.sets["wish"] = {"S": json.dumps(asdict(after))}
        as_read = absent if before == Wish() else Attr("wish").eq(json.dumps(asdict(before)))
        action.guards.append((Guard(as_read), OURS))
        return action

    return Operation(store, read, writes)


async def off(state):
    return Step(replace(state, on=False))


async def command_after(store, *others):
    """Give a command, before whose first write others come; return the state after it."""
    operation, left = wishes(store), [*others]

    async def read():
        state = await operation.read()
        while left:
            await left.pop(0)(operation)
        return state

    return await replace(operation, read=read).command(off, AuditEntry(1, "ann", "off"))


async def ten_further(state):
    return Step(replace(state, stage=state.stage + 10))


async def stepped(operation):
    before = await operation.read()
    await operation.step(before, replace(before, stage=before.stage + 1))


async def commanded(operation):
    async def nine(state):
        return Step(replace(state, stage=9))

    await operation.command(nine, AuditEntry(2, "bob", "nine"))


async def test_a_command_is_written_once_with_its_line_whatever_processes_do_meanwhile(store):
    after = await command_after(store, stepped, stepped)
    assert (after.on, after.stage, after.commands) == (False, 2, 1)
    assert after.audit == (AuditEntry(1, "ann", "off"),)


async def test_a_command_that_another_one_overtakes_is_refused_and_writes_nothing(store):
    with pytest.raises(ConfigurationError, match=r"another command was given meanwhile.*'off'"):
        await command_after(store, commanded)
    assert (await wishes(store).read()).on


async def test_a_command_that_changes_nothing_writes_nothing(store):
    said = AuditEntry(1, "ann", "off")
    await wishes(store).command(off, said)
    assert (await wishes(store).command(off, said)).commands == 1


async def test_a_command_whose_reply_was_lost_counts_once_even_after_a_later_step(store):
    operation = wishes(store)

    class Losing(Operation):
        async def step(self, before, after, along=()):
            await operation.step(before, after, along)
            await stepped(operation)
            raise LeaseLost("its reply was lost, and a process has stepped since")

    losing = Losing(store, operation.read, operation.writes)
    after = await losing.command(ten_further, AuditEntry(1, "ann", "ten"))
    assert (after.stage, after.commands) == (11, 1)


# -- watching --------------------------------------------------------------------------------------


@pytest.mark.parametrize("why", ["paused", "over", "stopping"])
def test_work_ends_once_its_operation_is_paused_or_over_or_has_to_stop(why):
    run_virtually(watched, why)


async def watched(why):
    looks, ending, stopping = [], anyio.Event(), anyio.Event()

    def goes_on(state):
        looks.append(state)
        if why == "stopping" and len(looks) > 1:
            stopping.set()
        return why != "over" or len(looks) < 2

    async with opened() as store:
        operation = replace(errand(store), held=lambda _: why == "paused" and len(looks) > 1)

        with anyio.fail_after(60):
            await operation.watch(ending, goes_on, stopping)
    assert ending.is_set()
    assert len(looks) == 2
