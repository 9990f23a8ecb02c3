"""Processes that stand still at any of their calls, and go on: the helpers find planted bugs."""

import asyncio
from functools import partial
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

SETTINGS = Settings(poll_ceiling=5, heartbeat=10, lease=30, list_interval=20, look_interval=20)
SAMPLE = 15


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
