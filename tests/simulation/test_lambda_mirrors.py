"""Copies follow their sources in Lambda functions alone, whatever a mapping does and in which order
sources and copies change, move, go and come back."""

from typing import ClassVar

import pytest

from streamkit import App, Entity, Index, Set
from streamkit.testing import Comparison, Trouble, trial
from streamkit.testing.hosts import Functions
from streamkit.testing.mapping import Habits
from tests.seeds import seeds

SEEDS = seeds()
TROUBLE = Trouble(crash=0.05, split=0.03, roll=0.02, pause=2.0)
ROUGH = Habits(batch=20, parallel=4, repeated=0.3, abandoned=0.2)
TASKS, LAG_SECONDS = 60, 3600.0


class User(Entity, pk="USER#{user}", sk="USER"):
    user: str
    name: str


class Task(Entity, pk="TASK#{task}", sk="TASK"):
    task: int
    owner: str
    name: str = ""

    by_owner: ClassVar = Index("GSI1", pk="OWNER#{owner}", sk="TASK#{task}")


def make_app(gone):
    app = App("tasks", table="Tasks")

    @app.mirror(
        copies=lambda user: Task.query(index=Task.by_owner, owner=user.user),
        source=lambda task: User.key(user=task.owner),
        gone=gone,
    )
    def copy_name(user: User, copy: Task) -> Set[Task]:
        return Set(copy.item_key, name=user.name)

    return app


class Lagging(Functions):
    """Functions whose table shows writes in its index late."""

    def __init__(self, app, world, met, faults):
        super().__init__(app, world, met, faults, ROUGH)
        world.engine.index_lag = LAG_SECONDS


class Office:
    """Users are renamed, go and come back; tasks are made with old names, move, and go."""

    def __init__(self, gone):
        self.gone, self.names = gone, 0

    async def open(self, writer):
        await writer.put(*(User(user=user, name="first") for user in "abc"))
        await writer.put(*(Task(task=n, owner="a", name="old") for n in range(TASKS // 2)))

    async def act(self, writer):
        dice, rng = writer.rng.random(), writer.rng
        user, task = rng.choice("abc"), rng.randrange(TASKS)
        self.names += 1
        if dice < 0.35:
            await writer.put(User(user=user, name=f"{user}{self.names}"))
        elif dice < 0.42:
            await writer.delete(User.key(user=user))
        elif dice < 0.9:
            await writer.put(Task(task=task, owner=user, name="old"))
        else:
            await writer.delete(Task.key(task=task))

    def expected(self, final):
        names = {user.user: user.name for user in final[User]}
        tasks = final[Task]
        owned = [task for task in tasks if task.owner in names]
        wanted = [task.model_copy(update={"name": names[task.owner]}) for task in owned]
        if self.gone == "keep":
            wanted += [task for task in tasks if task.owner not in names]
        yield final.compare(Task, wanted)
        parked = [i for i in final.items["Tasks"] if i.get("_sk_kind") == {"S": "parked"}]
        yield Comparison.of("parked", {"all": len(parked)}, {"all": 0})


@pytest.mark.parametrize("gone", ["keep", "delete"])
@pytest.mark.parametrize("seed", SEEDS)
def test_copies_end_as_their_sources_say(gone, seed):
    app = make_app(gone)
    ran = trial(app, Office(gone), seed=seed, acts=100, trouble=TROUBLE, host=Lagging)
    assert all(ran.met[name] for name in ("crash", "split", "roll"))
    assert ran.final[Task]
