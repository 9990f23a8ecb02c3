"""Runs a plan: a fleet of workers of the shop, what befalls it, and what must hold.

Everything follows from seed and plan. The run has three parts: trouble, while the plan's events
happen; recovery, in which faults end and the fleet must read everything and own every open shard;
and calm, in which it must not make calls or move leases without need, nor take what arrives now, up
to a quarter of an hour after it was sent. Then all workers are stopped,
which must not take long or leave a lease behind.
"""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import anyio

from streamkit.progress.actions import own_attributes
from streamkit.progress.control import read_cursor
from streamkit.settings import Settings
from streamkit.testing.chance import repeatable
from streamkit.testing.faults import OVERDUE_SECONDS
from streamkit.testing.loop import EPOCH, run_virtually
from streamkit.testing.world import CrashPoint, Process, World
from tests.simulation.coverage import Coverage
from tests.simulation.fleet_lives import Life, describe, events_seen
from tests.simulation.fleet_shop import Books, expected, found, make_app
from tests.simulation.invariants import Leases, Referee, Violation, usual
from tests.simulation.plan import Plan
from tests.simulation.planned_faults import PlannedFaults
from tests.simulation.retention import Retention
from tests.simulation.shop import TABLE, Traffic, create_table

VERSIONS = (1, 2)
COMMIT = "TransactWriteItems"
_RESCUE = 900
"""Number of the worker that is started when a plan leaves none alive."""
_STOP_SECONDS = 15.0
_CALM_SECONDS = 12.0
_CALLS_PER_SECOND = 60
_SHARDS_MAX = 8
_LOGGED = {"commit.adopted": "commit_adopted", "commit.unknown": "commit_unknown"}


@dataclass
class Outcome:
    """What a run came to: violations if it failed, and counts."""

    seed: int
    plan: Plan
    violations: list[Violation] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        return bool(self.violations)

    @property
    def invariant(self) -> str:
        """Name the first invariant that did not hold."""
        return self.violations[0].invariant if self.violations else ""


def run(seed: int, plan: Plan) -> Outcome:
    """Run a plan to its end, or to its first violation."""
    outcome = Outcome(seed, plan)
    fleet = FleetRun(seed, plan, outcome)
    with repeatable(seed), events_seen(fleet.heard):
        try:
            run_virtually(fleet.main, seed=seed)
        except Exception as error:
            outcome.violations.append(Violation("error", outcome.seconds, describe(error)))
    return outcome


class Stopped(Exception):
    """The run has nothing more to find out."""


class FleetRun:
    """One run of one plan."""

    def __init__(self, seed: int, plan: Plan, outcome: Outcome) -> None:
        self.seed, self.plan, self.outcome = seed, plan, outcome
        self.rng = random.Random(f"run {seed}")
        self.settings = Settings(**plan.shape["settings"])
        on_loss = plan.shape.get("on_loss", "halt")
        self.apps = {version: make_app(version, on_loss) for version in VERSIONS}
        self.lives: dict[int, Life] = {}
        self.taken = outcome.counts

    async def main(self) -> None:
        world = self.world = World.create(self.seed, shards=self.plan.shape["shards"])
        world.control.configure(**self.plan.shape["engine"])
        self.retention = Retention(world.engine, self.outcome.counts)
        versions = {app.fingerprint(): version for version, app in self.apps.items()}
        self.books = Books(versions, self.retention.is_missed)
        self.leases = Leases()
        calls = 10 * _CALLS_PER_SECOND
        self.referee = Referee(*usual(self.leases, self.parent, calls), self.retention, self.books)
        self.coverage = Coverage(world.engine, self.outcome.counts)
        create_table(world)
        world.watchers += [self.referee, self.coverage]
        self.traffic = Traffic(world, self.seed)
        async with anyio.create_task_group() as group:
            self.group = group
            try:
                await self.trouble()
                await self.recovery()
                await self.stragglers()
                await self.calm()
                await self.end()
                self.ruled()
            except Stopped:
                pass
            finally:
                self.outcome.seconds = world.clock.monotonic()
                self.outcome.counts["change"] = self.books.passed
                group.cancel_scope.cancel()

    # -- the three parts -----------------------------------------------------------------------

    async def trouble(self) -> None:
        """Let the plan's timed events happen, in the order of their times."""
        timed = sorted((e for e in self.plan.events if "at" in e), key=lambda e: e["at"])
        for event in timed:
            await self.until(event["at"])
            getattr(self, f"do_{event.what}")(event)
        await self.until(self.plan.shape["seconds"])

    async def recovery(self) -> None:
        """End the faults, and wait until all is read and every open shard is owned."""
        for life in self.lives.values():
            life.process.faults.active = False
            life.process.crash = None
            life.process.thaw()
        versions = [
            life.version for life in self.lives.values() if life.alive and not life.stopping
        ]
        if not versions:
            self.start(
                _RESCUE, 2 if any(e["version"] == 2 for e in self.plan.named("start")) else 1
            )
        deadline = self.now + 12 * self.settings.lease + 120
        step = max(1.0, self.settings.poll_ceiling / 4)
        while True:
            await self.ruled_sleep(step)
            wanted, there = self.wanted(), found(self.world)
            unowned = self.unowned()
            if wanted == there and not unowned:
                self.taken["parked"] += sum(wanted["parked"].values())
                return
            if self.now > deadline:
                wrong = {k: (there[k], wanted[k]) for k in wanted if there[k] != wanted[k]}
                self.fail("liveness", f"found, expected: {wrong}; without an owner: {unowned}")

    async def stragglers(self) -> None:
        """Wait until all that is overdue has arrived: nothing may come of it."""
        if self.taken["overdue"]:
            await self.ruled_sleep(OVERDUE_SECONDS)
            if (wanted := self.wanted()) != (there := found(self.world)):
                self.fail("late", f"expected {wanted}, found {there} after overdue writes arrived")

    async def calm(self) -> None:
        """Watch a fleet that has nothing to do; late requests arrive meanwhile."""
        calls, takes = len(self.world.calls), sum(self.leases.takes.values())
        seconds = _CALM_SECONDS + 2 * self.settings.heartbeat
        for _ in range(4):
            await self.ruled_sleep(seconds / 4)
        alive = sum(life.alive for life in self.lives.values())
        shards = len(self.world.control.shards(TABLE))
        each = 4 + 3 * seconds / self.settings.heartbeat
        polls = 2 + seconds / min(self.settings.poll_ceiling, 1.0) * 2.5
        bound = 30 + alive * each * (2 + alive) + shards * polls
        made = len(self.world.calls) - calls
        if made > bound:
            self.fail("idle", f"{made} calls in {seconds:.0f} idle seconds, {bound:.0f} are enough")
        # An older roll-out may take over now: each shard and the lister once.
        if sum(self.leases.takes.values()) > takes + shards + 1:
            self.fail("thrash", "leases move though nothing happens")
        if (wanted := self.wanted()) != (there := found(self.world)):
            self.fail("late", f"expected {wanted}, found {there} after late requests arrived")
        moves = max(self.leases.takes.values(), default=0)
        if moves > 10 + 3 * len(self.lives):
            self.fail("thrash", f"a lease moved {moves} times among {len(self.lives)} workers")

    async def end(self) -> None:
        """Stop all workers; they must release what they have, soon."""
        for life in self.lives.values():
            life.stop()
        deadline = self.now + _STOP_SECONDS
        while any(life.alive for life in self.lives.values()):
            await self.ruled_sleep(0.25)
            if self.now > deadline:
                names = [n for n, life in self.lives.items() if life.alive]
                self.fail("stop", f"workers {names} run {_STOP_SECONDS} s after stop")
        cursors = [read_cursor(own_attributes(item)) for item in self.cursors()]
        if owned := [c.name for c in cursors if c.owner is not None and not c.finished]:
            self.fail("stop", f"{owned} have an owner after all workers stopped")
        if (wanted := self.wanted()) != (there := found(self.world)):
            self.fail("late", f"expected {wanted}, found {there} in the end")
        for text in self.retention.silent():
            self.note("retention", text)
        self.taken["lost"] += len(self.lost())

    # -- events --------------------------------------------------------------------------------

    def do_start(self, event: Any) -> None:
        self.start(event["worker"], event["version"])

    def do_write(self, event: Any) -> None:
        self.traffic.rng = random.Random(event["seed"])
        self.traffic.write(event["count"], poison=event["poison"])

    def do_split(self, event: Any) -> None:
        shards = self.open_shards()
        if len(shards) < _SHARDS_MAX:
            self.world.control.split(TABLE, shards[event["shard"] % len(shards)])
            self.taken["split"] += 1

    def do_roll(self, event: Any) -> None:
        shards = self.open_shards()
        self.world.control.roll(TABLE, shards[event["shard"] % len(shards)])
        self.taken["roll"] += 1

    def do_roll_all(self, _event: Any) -> None:
        self.world.control.roll(TABLE)
        self.taken["roll"] += 1

    def do_kill(self, event: Any) -> None:
        if (life := self.lives.get(event["worker"])) and life.alive:
            life.process.kill()
            self.taken["kill"] += 1

    def do_stop(self, event: Any) -> None:
        if (life := self.lives.get(event["worker"])) and life.alive:
            life.stop()
            self.taken["stop"] += 1

    def do_freeze(self, event: Any) -> None:
        if (life := self.lives.get(event["worker"])) and life.alive:
            life.process.freeze()
            self.group.start_soon(self.thaw, life, event["seconds"])
            self.taken["freeze"] += 1

    async def thaw(self, life: Life, seconds: float) -> None:
        await anyio.sleep(seconds)
        life.process.thaw()

    def start(self, number: int, version: int) -> None:
        """Start a worker, with the faults and the end that the plan has for it."""
        mine = [e for e in self.plan.events if "call" in e and e["worker"] == number]
        faults = [(e["call"], e["kind"], None) for e in mine if e.what == "fault"]
        faults += [(e["call"], e["kind"], COMMIT) for e in mine if e.what == "commit_fault"]
        kills = [CrashPoint(e["call"], e["moment"]) for e in mine if e.what == "kill"]
        process = Process(
            f"worker-{number}",
            kills[0] if kills else None,
            PlannedFaults(faults, random.Random(self.rng.random()), self.taken),
        )
        life = self.lives[number] = Life(process, version)
        self.group.start_soon(self.live, life)

    async def live(self, life: Life) -> None:
        """Run a worker until it is stopped or dies."""
        try:
            lived = await self.world.run_worker(
                self.apps[life.version],
                process=life.process,
                settings=self.settings,
                until_idle=False,
                started=life.started,
            )
        except Exception as error:
            life.ended = True
            self.note("error", f"{life.process.name} ended: {describe(error)}")
            return
        life.ended = True
        if life.process.crash is not None and not lived:
            self.taken["kill"] += 1
        if lived and not life.stopping:
            self.note("error", f"{life.process.name} ended by itself")

    # -- looking -------------------------------------------------------------------------------

    def heard(self, line: dict[str, Any]) -> None:
        """Count a log line: `commit.adopted` as commit_adopted. Check what it says is certain."""
        if (name := line["event"]) in _LOGGED:
            self.taken[_LOGGED[name]] += 1
        if name == "retention.lost" and line["certain"]:
            self.taken["certain_loss"] += 1
            for text in self.retention.certain(line["shard"]):
                self.note("retention", text)

    def lost(self) -> frozenset[tuple[int, int]]:
        """Name the changes that were trimmed before they were processed."""
        return self.books.places(self.retention.lost())

    def wanted(self) -> dict[str, Any]:
        """Return what the table must hold by now."""
        return expected(self.traffic, self.lost())

    @property
    def now(self) -> float:
        return self.world.clock.monotonic()

    async def until(self, moment: float) -> None:
        if (seconds := moment - self.now) > 0:
            await self.ruled_sleep(seconds)

    async def ruled_sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)
        self.ruled()

    def ruled(self) -> None:
        """End the run at its first violation."""
        if self.referee.violations or self.outcome.violations:
            found = [*self.outcome.violations, *self.referee.violations]
            self.outcome.violations[:] = sorted(found, key=lambda v: v.at)[:5]
            raise Stopped

    def note(self, invariant: str, text: str) -> None:
        self.outcome.violations.append(Violation(invariant, EPOCH + self.now, text))

    def fail(self, invariant: str, text: str) -> None:
        """End the run with a violation."""
        self.note(invariant, text)
        self.ruled()

    def open_shards(self) -> list[str]:
        return [shard["id"] for shard in self.world.control.shards(TABLE) if shard["open"]]

    def cursors(self) -> list[dict[str, Any]]:
        return [i for i in self.world.items(TABLE) if i.get("_sk_kind") == {"S": "cursor"}]

    def unowned(self) -> list[str]:
        """Return the open shards that no living worker owns."""
        names = {life.worker.name for life in self.lives.values() if life.alive and life.worker}
        owners = {i["_sk_name"]["S"]: i.get("_sk_owner", {}).get("S") for i in self.cursors()}
        return [shard for shard in self.open_shards() if owners.get(shard) not in names]

    def parent(self, shard_id: str) -> str | None:
        """Return the parent of a shard, if the stream still has it."""
        for stream in self.world.engine.streams.all(TABLE):
            shard = stream.shard(shard_id)
            if shard is not None and shard.parent_id is not None:
                return shard.parent_id if stream.shard(shard.parent_id) is not None else None
        return None
