"""Many shards whose changes all add to one group: the group is right, and no commit is tried for ever."""

from typing import Annotated

from streamkit import Aggregate, App, Count, Entity, Key
from streamkit.settings import Settings
from streamkit.testing.world import Process
from tests.simulation.throttling import Contention

SHARDS, CHANGES = 100, 400


class Like(Entity, pk="LIKE#{number}", sk="LIKE"):
    number: int


class Likes(Aggregate[Like], pk="LIKES", sk="LIKES"):
    likes: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, _: Like) -> Key["Likes"]:
        return cls.key()


class Contended(Process):
    """Its transactions hold their items for 20 ms each, against those of all other shards."""

    contention = Contention(0.02)

    async def intercept(self, call, apply):
        self.calls += 1
        return await self.contention.intercept(call, apply)


def test_a_hundred_shards_that_add_to_one_group_come_to_its_sum_in_few_attempts(
    harness_of, monkeypatch
):
    monkeypatch.setattr(Contended, "contention", Contention(0.02))
    monkeypatch.setattr("streamkit.testing.stops.Process", Contended)
    app = App("likes", table="Likes")
    app.aggregate(Likes)
    harness = harness_of(app, shards=SHARDS, settings=Settings())
    harness.settle()
    harness.put(*(Like(number=number) for number in range(CHANGES)))
    harness.settle()
    assert [one.likes for one in harness.scan(Likes)] == [CHANGES]
    contention = Contended.contention
    assert contention.cancelled > SHARDS
    assert contention.sent <= 10 * CHANGES, contention.sent
