"""Deploys and moves back and forth, beside redrives, of one consumer.

In each period another version of the app runs, or another host, while items are written, some of
which fail for a while, and two persons redrive what is parked, each with calls that take their
time. A version is deployed over the one before it, which stops later, or dies. In the end all is
healed and redriven: `wrong` says which items were not counted once for each change, in order.
"""

import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

import anyio

from streamkit import Add, App, Entity, Inserted, Modified, Policy, Set
from streamkit.operate.moves import MoveRefused, move_to_lambda, move_to_workers
from streamkit.operate.redrive import redrive
from streamkit.progress.activity import task_group
from streamkit.settings import Settings
from streamkit.testing.chance import repeatable
from streamkit.testing.faults import Faults
from streamkit.testing.harness import table_of
from streamkit.testing.hosts import Functions
from streamkit.testing.loop import run_virtually
from streamkit.testing.mapping import Habits
from streamkit.testing.world import Process, World

TABLE = "Deploys"
ITEMS = 6
PERIODS = 4
SECONDS = 60.0
"""How long a period is, about."""
SETTINGS = Settings(poll_ceiling=2, heartbeat=2, lease=7, list_interval=20, look_interval=10)
POLICY = Policy(attempts=1, retry_seconds=5, retry_seconds_max=20, retry_limit=99, breaker=False)


class Thing(Entity, pk="THING#{number}", sk="THING"):
    number: int
    n: int = 0


class Tally(Entity, pk="TALLY#{number}", sk="TALLY"):
    number: int
    times: int = 0
    last: int = 0


class Seen(Entity, pk="SEEN#{number}", sk="SEEN"):
    number: int
    times: int = 0


def version(number, down):
    """Return the app; its second version has a handler more."""
    app = App("deploys", table=TABLE, entities=[Tally, Seen], policy=POLICY)

    @app.on
    def tally(change: Inserted[Thing] | Modified[Thing]) -> list[Add[Tally] | Set[Tally]]:
        if change.new.number in down:
            raise OSError("down")
        key = Tally.key(number=change.new.number)
        return [Add(key, times=1), Set(key, last=change.new.n)]

    if number == 2:

        @app.on
        def see(change: Inserted[Thing] | Modified[Thing]) -> Add[Seen]:
            return Add(Seen.key(number=change.new.number), times=1)

    return app


@dataclass
class Deploys:
    """One run; `met` counts what happened."""

    seed: int
    met: Counter[str] = field(default_factory=Counter)
    down: set[int] = field(default_factory=set)
    written: Counter[int] = field(default_factory=Counter)
    wrong: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    def __post_init__(self):
        self.rng = random.Random(f"deploys/{self.seed}")
        self.world = World.create(self.seed, shards=2)
        self.faults = Faults(random.Random(self.seed), slow=0.5, lost_reply=0.01)
        self.world.engine.call("dynamodb", "CreateTable", table_of(version(2, self.down)))
        self.app, self.number = version(1, self.down), 1
        self.host = "workers"
        self.running = []

    async def play(self):
        """Let it all happen; then heal and redrive what is left, and compare."""
        async with task_group() as self.group:
            await self._deploy()
            for _ in range(PERIODS):
                await self._period()
                await self._change()
            self.down.clear()
            await self._stop()
            await self._come_to_rest()
            self.group.cancel_scope.cancel()
        found = {int(i["number"]["N"]): i for i in self._items("TALLY#")}
        for number, times in self.written.items():
            item = found.get(number, {})
            got = tuple(int(item.get(name, {"N": "0"})["N"]) for name in ("times", "last"))
            if got != (times, times):
                self.wrong[number] = (times, *got)

    def _items(self, prefix):
        return [i for i in self.world.items(TABLE) if i["PK"]["S"].startswith(prefix)]

    def _parked(self):
        return [i for i in self.world.items(TABLE) if i.get("_sk_kind") == {"S": "lane"}]

    def _write(self):
        number = self.rng.randrange(ITEMS)
        self.written[number] += 1
        key = {"PK": {"S": f"THING#{number}"}, "SK": {"S": "THING"}}
        values = {"number": number, "n": self.written[number]}
        item = {**key, **{name: {"N": str(value)} for name, value in values.items()}}
        status, body = self.world.engine.call(
            "dynamodb", "PutItem", {"TableName": TABLE, "Item": item}
        )
        assert status == 200, body

    async def _period(self):
        """Write; let some items fail, heal them, and let two persons redrive at once."""
        self.down |= set(self.rng.sample(range(ITEMS), 2))
        for _ in range(12):
            self._write()
            await anyio.sleep(self.rng.random() * SECONDS / 20)
        self.met["parked"] += len(self._parked())
        self.down.clear()
        async with anyio.create_task_group() as persons:
            for name in ("one", "other"):
                persons.start_soon(self._redrive, name)
            self._write()

    async def _redrive(self, name):
        process = Process(name, faults=Faults(random.Random(name), slow=1.0))
        async with self.world.clients(process) as aws:
            reports = await redrive(self.app, aws, clock=self.world.clock)
        self.met["redriven"] += sum(report.done for report in reports)

    # -- deploys and moves ---------------------------------------------------------------------

    async def _change(self):
        dice = self.rng.random()
        if self.host == "lambda" or dice < 0.3:
            await self._move()
        else:
            self.number = 3 - self.number
            self.app = version(self.number, self.down)
            old, self.running = self.running, []
            await self._deploy()
            await anyio.sleep(self.rng.random() * 20)
            for process, workers in old:
                if self.rng.random() < 0.5:
                    process.kill()
                    self.met["killed"] += 1
                for worker in workers:
                    worker.stop()
            self.met["deploys"] += 1
            await anyio.sleep(20)

    async def _deploy(self):
        """Let two workers of the app start."""
        for place in range(2):
            process = Process(f"v{self.number} {place} {len(self.met)}", faults=self.faults)
            workers = []
            self.running.append((process, workers))
            self.group.start_soon(self._work, self.app, process, workers)
        await anyio.sleep(5)

    async def _work(self, app, process, workers):
        async def started(worker):
            workers.append(worker)

        await self.world.run_worker(
            app, process=process, settings=SETTINGS, until_idle=False, started=started
        )

    async def _stop(self):
        for _, workers in self.running:
            for worker in workers:
                worker.stop()
        self.running = []
        if self.host == "lambda":
            self.functions.close()
        await anyio.sleep(30)

    async def _move(self):
        """Let the other host go on, with the version that ran last."""
        await self._stop()
        self.met["moves"] += 1
        async with self.world.clients(Process("mover", faults=self.faults)) as aws:
            if self.host == "workers":
                with suppress(MoveRefused):
                    await move_to_lambda(self.app, aws, lease_seconds=7, clock=self.world.clock)
                    self.host = "lambda"
            else:
                await move_to_workers(self.app, aws, in_flight=60, clock=self.world.clock)
                self.host = "workers"
        await self._begin()

    async def _begin(self):
        if self.host == "workers":
            await self._deploy()
        else:
            habits = Habits(repeated=0, abandoned=0)
            self.functions = Functions(self.app, self.world, self.met, self.faults, habits)
            self.functions.start(self.group, 1)

    async def _come_to_rest(self):
        """Let a host go on until nothing is left."""
        await self._begin()
        with anyio.fail_after(3600):
            while True:
                await anyio.sleep(60)
                await self._redrive("the end")
                if self._parked():
                    continue
                if self.host == "lambda":
                    await self.functions.settle()
                    break
                if all(w.is_idle(3) for _, workers in self.running for w in workers):
                    break
        await self._stop()


def run(seed):
    """Play a run; return it."""

    async def main():
        deploys = Deploys(seed)
        await deploys.play()
        return deploys

    with repeatable(seed):
        return run_virtually(main, seed=seed)
