"""A contest for one extreme: few items, each in a shard of its own, calls that take their time.

The items of the groups lie in one partition of the table, and the stream spreads them over shards,
so that several commit loops meet at one aggregate. An application writes on and on while they do;
`run` says what the aggregates hold in the end and what they should. One seed is one run.
"""

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated

import anyio

from streamkit import Aggregate, App, Count, Entity, Key, Last, Max, Min, Top
from streamkit.local.iterators import ShardIterator
from streamkit.settings import Settings
from streamkit.testing.loop import run_virtually
from streamkit.testing.world import Process, World

TABLE = "Contest"
QUICK = Settings(poll_floor=0.02, poll_ceiling=0.3, heartbeat=60, lease=150, list_interval=300)


class Bid(Entity, pk="LOT#{lot}", sk="BID#{number}"):
    lot: str
    number: int
    amount: int | None = None
    text: str = ""


class Lot(Aggregate[Bid], pk="RESULT#{lot}", sk="RESULT"):
    lot: str
    bids: Annotated[int, Count()] = 0
    lowest: Annotated[int | None, Min("amount")] = None
    highest: Annotated[int | None, Max("amount", when=lambda bid: bid.text != "void")] = None
    last_text: Annotated[str | None, Last("text", by="amount")] = None
    best: Annotated[tuple[str, ...], Top(2, by="amount", of=lambda bid: bid.text)] = ()

    @classmethod
    def group(cls, bid: Bid) -> Key["Lot"] | None:
        return cls.key(lot=bid.lot)

    @classmethod
    def members(cls, lot: str):
        return Bid.query(lot=lot)


class Lowest(Aggregate[Bid], pk="RESULT#{lot}", sk="RESULT"):
    """One extreme alone, so that most contributions leave the entries as they are."""

    lot: str
    lowest: Annotated[int | None, Min("amount")] = None

    @classmethod
    def group(cls, bid: Bid) -> Key["Lowest"]:
        return cls.key(lot=bid.lot)

    @classmethod
    def members(cls, lot: str):
        return Bid.query(lot=lot)


def make_app(aggregate=Lot):
    app = App("contest", table=TABLE)
    app.aggregate(aggregate)
    return app


def create_table(world):
    keys = {"PK": "HASH", "SK": "RANGE"}
    request = {
        "TableName": TABLE,
        "KeySchema": [{"AttributeName": n, "KeyType": k} for n, k in keys.items()],
        "AttributeDefinitions": [{"AttributeName": n, "AttributeType": "S"} for n in keys],
        "BillingMode": "PAY_PER_REQUEST",
        "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    }
    assert world.engine.call("dynamodb", "CreateTable", request)[0] == 200


@dataclass
class Jitter:
    """Lets each call take a moment, on its way there and back, and some commits much longer."""

    rng: random.Random
    longest: float = 0.06
    slow: float = 0.3

    async def intercept(self, call, apply):
        commits = call.operation == "TransactWriteItems"
        slow = commits and self.rng.random() < self.slow
        await anyio.sleep(self.rng.random() * (1.0 if slow else self.longest))
        response = apply()
        await anyio.sleep(self.rng.random() * self.longest)
        return response


@dataclass
class Contest:
    """One run: the world, what was written, and what came of it."""

    seed: int
    shards: int = 4
    items: int = 3
    writes: int = 5
    rest: float = 0.12
    span: float = 3.0
    amounts: tuple[int | None, ...] = (None, 1, 2, 3)
    lots: tuple[str, ...] = tuple("abcdefghijklmnop")
    settings: Settings = QUICK
    bids: dict[tuple[str, int], Bid] = field(default_factory=dict)
    aggregate: type[Entity] = Lot
    result: dict[str, dict] = field(default_factory=dict)
    workers: list = field(default_factory=list)

    def __post_init__(self):
        self.world = World.create(self.seed, shards=self.shards)
        self.world.control.configure(spread_collections=True)
        self.rng = random.Random(self.seed)
        create_table(self.world)

    @property
    def fields(self):
        """Return the measures of the aggregate."""
        return self.aggregate.model_fields.keys() - {"lot"}

    def put(self, bid):
        """Write a bid, or remove it if it has neither amount nor text."""
        key = {"PK": {"S": f"LOT#{bid.lot}"}, "SK": {"S": f"BID#{bid.number}"}}
        item = {**key, "lot": {"S": bid.lot}, "number": {"N": str(bid.number)}}
        if bid.amount is not None:
            item["amount"] = {"N": str(bid.amount)}
        item["text"] = {"S": bid.text}
        if bid.text:
            request, name = {"TableName": TABLE, "Item": item}, "PutItem"
            self.bids[bid.lot, bid.number] = bid
        else:
            request, name = {"TableName": TABLE, "Key": key}, "DeleteItem"
            self.bids.pop((bid.lot, bid.number), None)
        assert self.world.engine.call("dynamodb", name, request)[0] == 200

    def random_bid(self, lot):
        rng = self.rng
        amount, text = rng.choice(self.amounts), rng.choice(["", "x", "y", "void"])
        return Bid(lot=lot, number=rng.randrange(self.items), amount=amount, text=text)

    async def play(self, *names):
        """Write while workers run; then let them catch up."""
        app = make_app(self.aggregate)
        for lot in self.lots:
            for _ in range(self.rng.randrange(self.items + 1)):
                self.put(self.random_bid(lot))
        async with anyio.create_task_group() as group:
            for name in names or ("worker",):
                process = Process(name, faults=Jitter(random.Random(self.seed)))
                group.start_soon(self._work, app, process)
            await anyio.sleep(1)  # they take their shards
            async with anyio.create_task_group() as traffic:
                for lot in self.lots:
                    traffic.start_soon(self._bid, lot)
            await self._rest()
            for worker in self.workers:
                worker.stop()
        self.result = self.stored()

    async def _bid(self, lot):
        """Write a few bids of one lot in quick succession, at some time."""
        await anyio.sleep(self.rng.random() * self.span)
        for _ in range(self.rng.randrange(2, self.writes + 1)):
            self.put(self.random_bid(lot))
            await anyio.sleep(self.rng.random() * self.rest)

    async def _work(self, app, process):
        async def started(worker):
            self.workers.append(worker)

        await self.world.run_worker(
            app, process=process, settings=self.settings, until_idle=False, started=started
        )

    async def _rest(self):
        """Wait until all is read and committed, and nothing is parked any more."""
        while not all(worker.is_idle(3) for worker in self.workers) or self.parked():
            await anyio.sleep(0.3)

    def parked(self):
        """Return the queues of parked changes."""
        return [i for i in self.world.items(TABLE) if i.get("_sk_kind") == {"S": "lane"}]

    # -- the result ----------------------------------------------------------------------------

    def stored(self):
        """Return what each lot's aggregate holds, without what is empty."""
        found = {}
        for item in self.world.items(TABLE):
            if item["PK"]["S"].startswith("RESULT#"):
                values = {
                    name: int(item[name]["N"])
                    for name in ("bids", "lowest", "highest")
                    if name in item
                }
                if "last_text" in item:
                    values["last_text"] = item["last_text"]["S"]
                values["best"] = [text["S"] for text in item.get("best", {"L": []})["L"]]
                found[item["lot"]["S"]] = {n: v for n, v in values.items() if v}
        return {lot: values for lot, values in found.items() if values}

    def true(self):
        """Return what they should hold, of what the aggregates have."""
        found = {}
        for lot in self.lots:
            bids = [bid for bid in self.bids.values() if bid.lot == lot]
            order = sorted(
                (bid for bid in bids if bid.amount is not None),
                key=lambda bid: (bid.amount, f"BID#{bid.number}"),
                reverse=True,
            )
            counted = [bid for bid in order if bid.text != "void"]
            values = {
                "bids": len(bids),
                "lowest": order[-1].amount if order else None,
                "highest": counted[0].amount if counted else None,
                "last_text": order[0].text if order else None,
                "best": [bid.text for bid in order[:2]],
            }
            if any(values.values()):
                found[lot] = {n: v for n, v in values.items() if v and n in self.fields}
        return {lot: values for lot, values in found.items() if values}

    @property
    def is_right(self):
        """Return whether the aggregates hold what they should."""
        return self.result == self.true()

    def commits(self):
        """Count the transactions that were sent, by whether they were accepted."""
        return Counter(
            call.status == 200
            for call in self.world.calls
            if call.operation == "TransactWriteItems"
        )


def run(seed, *, workers=("worker",), **options):
    """Play a contest; return it."""

    async def scenario():
        contest = Contest(seed, **options)
        await contest.play(*workers)
        return contest

    return run_virtually(scenario, seed=seed)


@dataclass
class Stage:
    """Two bids of one lot, each in a shard of its own, and calls that wait for their cue."""

    held: set[str] = field(default_factory=set)
    waits: Counter[str] = field(default_factory=Counter)

    def __post_init__(self):
        self.contest = Contest(0, shards=2, lots=("a",), aggregate=Lowest)
        self.world = self.contest.world
        written: dict[str, int] = {}
        self.world.watchers.append(
            lambda seen: [written.setdefault(write.shard, self.number) for write in seen.writes]
        )
        self.number = 0
        while len(written) < 2:
            self.number += 1
            self.bid(self.number, 1)
            self.bid(self.number, None)
        self.world.watchers.clear()
        (self.shard, self.one), (self.other_shard, self.other) = sorted(written.items())

    def bid(self, number, amount):
        """Write a bid, or remove it."""
        text = "" if amount is None else "x"
        self.contest.put(Bid(lot="a", number=number, amount=amount, text=text))

    def hold(self, *cues):
        """Let calls wait: `commit SHARD` of the aggregate, `read SHARD`, `query`.

        With `after` before it, the reply waits.
        """
        self.held |= set(cues)

    def release(self, *cues):
        """Let them go on."""
        self.held -= set(cues)

    async def until_waits(self, cue):
        """Wait until such a call waits."""
        with anyio.fail_after(30):
            while not self.waits[cue]:
                await anyio.sleep(0.01)

    async def intercept(self, call, apply):
        cue = self._cue(call)
        await self._wait(cue)
        response = apply()
        await self._wait(f"after {cue}")
        return response

    async def _wait(self, cue):
        while cue in self.held:
            self.waits[cue] = 1
            await anyio.sleep(0.01)
        self.waits[cue] = 0

    def _cue(self, call):
        if call.operation == "Query":
            return "query"
        if call.operation == "GetRecords":
            iterator = ShardIterator.parse(json.loads(call.payload)["ShardIterator"])
            return f"read {iterator.shard_id}"
        if call.operation == "TransactWriteItems" and b"RESULT#" in call.payload:
            shards = [s for s in (self.shard, self.other_shard) if s.encode() in call.payload]
            return f"commit {shards[0]}" if shards else "redrive"
        return ""

    async def play(self, script):
        """Run a worker while a script goes on; then let it catch up."""
        async with anyio.create_task_group() as group:
            process = Process("worker", faults=self)
            group.start_soon(self.contest._work, make_app(Lowest), process)
            await anyio.sleep(1)
            await self.rest()
            await script(self)
            self.held.clear()
            await self.rest()
            for worker in self.contest.workers:
                worker.stop()
        self.contest.result = self.contest.stored()

    async def rest(self):
        """Wait until all is committed."""
        await anyio.sleep(1)
        await self.contest._rest()

    async def until_stored(self, condition):
        """Wait for what the aggregate's item, in wire form, says."""
        with anyio.fail_after(30):
            while not condition(self.item()):
                await anyio.sleep(0.01)

    def item(self):
        items = [i for i in self.world.items(TABLE) if i["PK"]["S"].startswith("RESULT#")]
        return items[0] if items else {}
