"""A fleet of workers of one small app, each in a process that a test kills, freezes or cuts off.

What a test looks at comes from the engine's log alone: which worker took which shard, which one read it, and what
was asked for how often.
"""

from collections import Counter, defaultdict
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

import anyio

from streamkit import Aggregate, App, Count, Entity, Key
from streamkit.fleet.cursors import LISTER
from streamkit.progress.actions import own_attributes
from streamkit.progress.control import Cursor, read_cursor
from streamkit.settings import Settings
from streamkit.testing.sightings import shard_read
from streamkit.testing.world import Process, World
from tests.simulation.invariants import Fencing, Leases, Positions, Referee
from tests.tables import streamed

TABLE = "Fleet"
BUCKETS = 16


class Event(Entity, pk="EVENT#{number}", sk="EVENT#{number}"):
    number: int
    text: str = ""


class Tally(Aggregate[Event], pk="TALLY#{bucket}", sk="TALLY#{bucket}"):
    bucket: int
    events: Annotated[int, Count()] = 0

    @classmethod
    def group(cls, event: Event) -> Key["Tally"]:
        return cls.key(bucket=event.number % BUCKETS)


def make_app() -> App:
    app = App("fleet", table=TABLE)
    app.aggregate(Tally)
    return app


def create_table(world: World, name: str = TABLE, keys: tuple[str, ...] = ("PK", "SK")) -> None:
    status, body = world.engine.call("dynamodb", "CreateTable", streamed(name, *keys))
    assert status == 200, body


@dataclass(frozen=True)
class Take:
    """A shard's cursor has another owner; None means no owner."""

    at: float
    shard: str
    before: str | None
    after: str | None


@dataclass
class Life:
    """One worker and its process. `deaf` counts the services whose calls it loses."""

    name: str
    process: Process
    worker: Any = None
    deaf: str = ""
    ended: bool = False
    up: anyio.Event = field(default_factory=anyio.Event)

    async def started(self, worker: Any) -> None:
        self.worker = worker
        self.up.set()

    async def intercept(self, call: Any, apply: Any) -> Any:
        if self.deaf == call.service or (self.deaf == "write" and call.operation in _WRITES):
            await anyio.sleep(0.05)
            raise ConnectionResetError("cut off")
        return apply()


_WRITES = {"UpdateItem", "TransactWriteItems", "DeleteItem"}


class Fleet:
    """Workers on one engine. Times are virtual seconds since the run began."""

    def __init__(
        self, shards: int = 8, *, seed: int = 0, app: Any = None, keys: tuple[str, ...] = ("PK", "SK"),
        refereed: bool = True, **settings: Any,
    ) -> None:  # fmt: skip
        self.world = World.create(seed, shards=shards)
        create_table(self.world, keys=keys)
        self.keys, self.app = keys, app or make_app()
        self.settings = Settings(**settings)
        self.lives: dict[str, Life] = {}
        self.takes: list[Take] = []
        self.reads: dict[str, list[tuple[float, str]]] = defaultdict(list)
        self.calls: Counter[tuple[str, str]] = Counter()
        self.units: Counter[str] = Counter()
        self.describes: list[tuple[float, int]] = []
        self.written = 0
        self._owners: dict[str, str | None] = {}
        self.referee = Referee(Fencing(), Positions(), Leases()) if refereed else None
        self.world.watchers.append(self._see)

    @asynccontextmanager
    async def running(self, *names: str):
        async with anyio.create_task_group() as group:
            self.group = group
            for name in names:
                self.start(name)
            yield self
            group.cancel_scope.cancel()
        if self.referee is not None:
            assert not self.referee.violations, self.referee.violations

    @property
    def now(self) -> float:
        return self.world.clock.monotonic()

    # -- workers -------------------------------------------------------------------------------

    def start(self, name: str, app: Any = None) -> Life:
        life = Life(name, Process(name))
        life.process.faults = life
        self.lives[name] = life
        self.group.start_soon(self._live, life, app or self.app)
        return life

    async def _live(self, life: Life, app: Any) -> None:
        await self.world.run_worker(
            app,
            process=life.process,
            settings=self.settings,
            until_idle=False,
            started=life.started,
        )
        life.ended = True

    def name_of(self, owner: str | None) -> str | None:
        """Return the name here of a cursor's owner."""
        for life in self.lives.values():
            if life.worker is not None and life.worker.name == owner:
                return life.name
        return owner

    # -- the table -----------------------------------------------------------------------------

    def write(self, count: int = 50) -> None:
        """Write new events; their keys spread over the shards."""
        for _ in range(count):
            number = self.written
            item = {name: {"S": f"EVENT#{number}"} for name in self.keys}
            item |= {"number": {"N": str(number)}, "text": {"S": "x"}}
            body = {"TableName": TABLE, "Item": item}
            status, _ = self.world.engine.call("dynamodb", "PutItem", body)
            assert status == 200
            self.written += 1

    def tallied(self) -> int:
        """Return how many events the table has counted."""
        pk = self.keys[0]
        items = self.world.items(TABLE)
        return sum(int(i["events"]["N"]) for i in items if i[pk]["S"].startswith("TALLY#"))

    async def until_tallied(self, seconds: float = 60.0) -> None:
        with anyio.fail_after(seconds):
            while self.tallied() != self.written:
                await anyio.sleep(0.5)

    def cursors(self):
        """Return the unfinished cursors of shards, as they are in the table."""
        items = [i for i in self.world.items(TABLE) if i.get("_sk_kind") == {"S": "cursor"}]
        cursors = [read_cursor(own_attributes(item)) for item in items]
        return [c for c in cursors if c.name != LISTER and not c.finished]

    def owners(self) -> dict[str, str | None]:
        return {c.name: self.name_of(c.owner) for c in self.cursors()}

    def finished(self, shard: str) -> bool:
        items = [i for i in self.world.items(TABLE) if i.get("_sk_kind") == {"S": "cursor"}]
        cursors = [read_cursor(own_attributes(item)) for item in items]
        return any(c.name == shard and c.finished for c in cursors)

    def held(self) -> Counter[str | None]:
        return Counter(self.owners().values())

    def leader(self) -> str | None:
        for item in self.world.items(TABLE):
            if item.get("_sk_name") == {"S": LISTER}:
                return self.name_of(item.get("_sk_owner", {}).get("S"))
        return None

    def open_shards(self) -> set[str]:
        return {s["id"] for s in self.world.control.shards(TABLE) if s["open"]}

    async def until(self, condition, seconds: float = 60.0) -> float:
        """Wait for a condition; return how many seconds it took."""
        began = self.now
        with anyio.fail_after(seconds):
            while not condition():
                await anyio.sleep(0.05)
        return self.now - began

    def all_read(self, since: float, *, without: tuple[str, ...] = ()) -> bool:
        """Return whether every open shard was read after a moment, by one of the other workers."""
        return all(
            any(at >= since and who not in without for at, who in self.reads[shard][-50:])
            for shard in self.open_shards()
        )

    async def until_even(self, *names: str, seconds: float = 60.0) -> float:
        """Wait until these workers, and no others, hold all open shards, evenly."""

        def even() -> bool:
            held = self.held()
            counts = [held[name] for name in names]
            return (
                set(held) <= set(names)
                and sum(counts) == len(self.open_shards())
                and max(counts) - min(counts) <= 1
            )

        return await self.until(even, seconds)

    def moves(self, since: float) -> list[Take]:
        """Return which worker got which shard from another one since a moment."""
        got = [t for t in self.takes if t.at >= since and t.after is not None]
        return [t for t in got if t.before != t.after]

    # -- the engine's log ----------------------------------------------------------------------

    def _see(self, sighting) -> None:
        call = sighting.call
        self.calls[sighting.actor, call.operation] += 1
        self.units[sighting.actor] += sum(call.units.values())
        if call.service == "dynamodbstreams":
            self._saw_stream(sighting)
            return
        if self.referee is not None:
            self.referee(sighting)
        for _, after in sighting.cursors():
            if after is not None and after.name != LISTER and after.owner is not None:
                self._saw_owner(after)

    def _saw_owner(self, cursor: Cursor) -> None:
        """Note the owner of a shard; a child follows its parent."""
        before = self._owners.get(cursor.name) or self._owners.get(cursor.parent or "")
        if not cursor.finished and before != cursor.owner:
            self.takes.append(Take(self.now, cursor.name, before, cursor.owner))
        self._owners[cursor.name] = cursor.owner

    def _saw_stream(self, sighting) -> None:
        call = sighting.call
        if call.operation == "DescribeStream":
            self.describes.append((self.now, call.status))
        elif call.status == 200 and call.operation == "GetRecords":
            self.reads[shard_read(sighting)].append((self.now, sighting.actor))
