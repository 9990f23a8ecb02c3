"""Processes that stand still at any of their calls, and go on: the helpers find planted bugs."""

import ast
import asyncio
from functools import partial
from pathlib import Path
from typing import Annotated

import pytest

from streamkit import Aggregate, App, Count, Entity, Key
from streamkit.core.tables import survey
from streamkit.effects import Guard
from streamkit.model.conditions import present
from streamkit.progress import cursor
from streamkit.progress.actions import OURS
from streamkit.progress.cursor import CursorStore
from streamkit.settings import Settings
from streamkit.testing import every_crash, every_freeze
from streamkit.testing.every import EVERY_CALL, Stop, counted
from streamkit.testing.stops import THAWS
from tests.rigs import Rig

ROOT = Path(__file__).parents[2]
SETTINGS = Settings(poll_ceiling=5, heartbeat=10, lease=30, list_interval=20, look_interval=20)
SAMPLE = 6


class Like(Entity, pk="LIKE#{username}", sk="LIKE"):
    username: str


class Likes(Aggregate[Like], pk="LIKES", sk="LIKES"):
    likes: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, _: Like) -> Key["Likes"]:
        return cls.key()


class Notice(Entity, pk="NOTICE", sk="NOTICE"):
    edition: int


def make_app():
    app = App("likes", table="Likes", entities=[Notice])
    app.aggregate(Likes)
    return app


def make():
    return Rig(make_app(), shards=1, settings=SETTINGS)


async def publish(edition, aws, *, fenced):
    """Look which edition there is, then put a later one: fenced, IF that one is still there."""
    key = {"PK": {"S": "NOTICE"}, "SK": {"S": "NOTICE"}}
    there = (await aws.dynamodb.get_item(TableName="Likes", Key=key)).get("Item")
    if there is not None and int(there["edition"]["N"]) >= edition:
        return
    fence = {}
    if fenced:
        fence["ConditionExpression"] = "attribute_not_exists(PK) OR edition < :e"
        fence["ExpressionAttributeValues"] = {":e": {"N": str(edition)}}
    item = {**key, "edition": {"N": str(edition)}}
    try:
        await aws.dynamodb.put_item(TableName="Likes", Item=item, **fence)
    except aws.dynamodb.exceptions.ConditionalCheckFailedException:
        return


def two_editions(harness, *, fenced):
    for edition in (1, 2):
        harness.operate(partial(publish, edition, fenced=fenced))
    assert harness.get(Notice.key()) == Notice(edition=2)


fenced = partial(two_editions, fenced=True)
unfenced = partial(two_editions, fenced=False)


def likes_are_counted(harness):
    for username in ("ann", "bob"):
        harness.put(Like(username=username))
        harness.settle()
    assert harness.get(Likes.key()).likes == 2


def test_a_fenced_operation_may_stand_still_at_any_call():
    assert list(every_crash(fenced, make, part="operation")) == [1, 3]
    stops = list(every_freeze(fenced, make, part="operation"))
    assert {stop.thaw for stop in stops} == set(THAWS)
    assert {(stop.call, stop.moment) for stop in stops} == {
        *((call, "before") for call in range(4)),
        (1, "after"),
        (3, "after"),
    }


def test_an_unfenced_write_of_an_operation_is_found_by_freezes_alone():
    assert list(every_crash(unfenced, make, part="operation"))
    with pytest.raises(AssertionError) as caught:
        list(every_freeze(unfenced, make, part="operation"))
    assert caught.value.__notes__ == ["the operation was frozen until its lease, before its call 1"]


def test_calls_are_counted_from_the_scenario_on():
    def begun():
        harness = make()
        harness.settle()
        return harness

    calls, writes = counted(likes_are_counted, begun, "worker")
    assert writes
    assert set(writes) < set(range(calls))


async def by_steps(app, seen, aws):
    """Write the consumer's item twice, and let time pass after each."""
    store = CursorStore(aws.dynamodb, (await survey(app, aws)).space(app))
    for step in (1, 2):
        action = store.space.update("consumer")
        action.sets["step"] = {"N": str(step)}
        await store.write(action)
        seen.setdefault(id(aws), []).append(asyncio.get_running_loop().time())
        await asyncio.sleep(500)


@pytest.mark.parametrize(("thaw", "after"), [("phase", 0), ("lease", 60), ("end", 1000)])
def test_what_stands_still_goes_on_with_the_next_step_after_its_lease_or_after_the_end(thaw, after):
    with make() as harness:
        harness.settle()
        harness.operate(partial(by_steps, harness.app, {}))
        steps = {}
        harness.freeze(at=harness.operations.calls - 2, thaw=thaw, part="operation")
        harness.operate(partial(by_steps, harness.app, steps))
        harness.outlive()
        zombie, other = max(steps.values()), min(steps.values())
        assert zombie[0] - other[0] == pytest.approx(after, abs=2)


def test_a_worker_that_stands_still_at_any_call_changes_nothing_when_it_goes_on():
    stops = list(every_freeze(likes_are_counted, make, sample=SAMPLE))
    assert len(stops) >= SAMPLE
    assert {stop.thaw for stop in stops} == set(THAWS)


def likes_over_a_restart(harness):
    """Count before and after a stop, which ends all that runs."""
    harness.put(Like(username="ann"))
    harness.settle()
    harness.advance("2m")
    harness.stop()
    harness.put(Like(username="bob"))
    harness.advance("2m")
    likes = harness.get(Likes.key())
    assert (likes and likes.likes) == 1
    harness.settle()
    assert harness.get(Likes.key()).likes == 2


def test_a_worker_is_stopped_at_the_calls_behind_a_restart_too():
    restarts, behind = [], []

    def scenario(harness):
        likes_over_a_restart(harness)
        restarts.append(harness.restarts)

        behind.append(harness.calls - harness.worker.process.calls)

    calls, writes = counted(scenario, make, "worker")
    first = next(number for number in writes if number >= behind[0] > 0)
    Stop("worker", first, "after").play(scenario, make)
    Stop("worker", behind[0], "before", "end").play(scenario, make)
    assert restarts == [0, 1, 1]
    assert calls > first


def test_while_all_is_stopped_no_worker_that_stood_still_at_any_call_goes_on():
    assert list(every_freeze(likes_over_a_restart, make, sample=SAMPLE))
    assert list(every_crash(likes_over_a_restart, make, sample=SAMPLE))


def test_a_worker_that_commits_without_its_lease_is_found(monkeypatch):
    _, writes = counted(likes_are_counted, make, "worker")
    unguarded = Guard(present), OURS
    monkeypatch.setattr(cursor, "lease_guard", lambda _: unguarded)
    played = (Stop("worker", n, "before", "end").play(likes_are_counted, make) for n in writes)
    with pytest.raises(AssertionError):
        list(played)


def test_a_sample_is_chosen_by_its_seed_unless_the_environment_wants_all(monkeypatch):
    monkeypatch.delenv(EVERY_CALL, raising=False)
    monkeypatch.setattr(Stop, "play", lambda *_: None)

    def stops(seed):
        return list(every_freeze(fenced, make, part="operation", sample=3, seed=seed))

    assert stops(1) == stops(1)
    assert len(stops(1)) == 3
    assert stops(1) != stops(2)
    monkeypatch.setenv(EVERY_CALL, "1")
    assert len(stops(1)) == 18


def test_make_stops_plays_every_stop_of_each_test_that_plays_a_sample():
    """It chooses tests by their names."""
    sampled = [
        function.name
        for file in Path(__file__).parent.glob("test_*.py")
        for function in ast.parse(file.read_text()).body
        if isinstance(function, ast.FunctionDef) and any(map(is_sample, ast.walk(function)))
    ]
    assert len(sampled) > 40
    ours = test_a_sample_is_chosen_by_its_seed_unless_the_environment_wants_all
    assert [name for name in sampled if "any_call" not in name] == [ours.__name__]
    assert '-k "any_call"' in (ROOT / "Makefile").read_text()


def is_sample(node):
    """Return whether a piece of code plays some of all stops."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    sample = "sample" in {keyword.arg for keyword in node.keywords}
    return node.func.id == "chosen" or (sample and node.func.id.startswith("every_"))
