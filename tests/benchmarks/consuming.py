"""The consumer of a benchmark: the real worker in a process of its own, as `streamkit worker` runs it.

`finish` waits until the worker has committed everything that the server gives, and returns the CPU
time of the whole process since `mark`: reading, handling and committing, and all that a worker does
beside.
"""

import asyncio
import gc
import resource
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

from streamkit import (
    Aggregate,
    App,
    Change,
    Count,
    Entity,
    Key,
    Modified,
    Policy,
    Put,
    Query,
    Set,
    Sum,
)
from streamkit.cli import workers as cli
from streamkit.observe.logs import configure
from streamkit.settings import Settings
from streamkit.worker.process import Workers
from tests.benchmarks.deals import Deal
from tests.benchmarks.processes import use_server
from tests.benchmarks.sampling import Sampler
from tests.benchmarks.serving import TABLE

LOOK_SECONDS = 0.1
"""To look is part of what is measured: with fifty looks a second it was a sixth of a small round."""


class Brand(Aggregate[Deal], pk="BRAND#{brand}", sk="BRAND#{brand}"):
    brand: str
    deals: Annotated[int, Count()] = 0
    views: Annotated[int, Sum("views")] = 0


class Shelf(Aggregate[Deal], pk="SHELF#{name}", sk="SHELF#{name}"):
    name: str
    deals: Annotated[int, Count()] = 0
    views: Annotated[int, Sum("views")] = 0

    @classmethod
    def group(cls, deal: Deal) -> Key["Shelf"] | None:
        return cls.key(name=deal.brand) if deal.status != "DRAFT" else None


class Notice(Entity, pk="NOTICE#{deal_id}", sk="NOTICE#{deal_id}"):
    deal_id: str
    views: int


class Seller(Entity, pk="SELLER#{brand}", sk="SELLER#{brand}"):
    brand: str
    city: str


class Watch(Entity, pk="WATCH#{brand}", sk="WATCH#{number:06d}"):
    brand: str
    number: int
    city: str = ""


class Message(Entity, pk="MESSAGE#{number:06d}", sk="SELLER#{brand}#{city}"):
    number: int
    brand: str
    city: str


class Seen:
    """How many changes the handler `count` was given; whether the handler `failing` fails."""

    changes = 0
    failing = False


def _count(app: App) -> None:
    @app.on
    def count(change: Modified[Deal]) -> None:
        Seen.changes += 1


def _read(app: App) -> None:
    @app.on
    def read(change: Modified[Deal]) -> None:
        if change.new.views < change.old.views:
            raise AssertionError(change.new.deal_id)


def _put(app: App) -> None:
    @app.on
    def notice(change: Modified[Deal]) -> Put[Notice]:
        return Put(Notice(deal_id=change.new.deal_id, views=change.new.views))


def _put_async(app: App) -> None:
    @app.on
    async def notice(change: Modified[Deal]) -> Put[Notice]:
        return Put(Notice(deal_id=change.new.deal_id, views=change.new.views))


def _both(app: App) -> None:
    app.aggregate(Brand)
    _put(app)


def _failing(app: App) -> None:
    @app.on
    def failing(change: Modified[Deal]) -> Put[Notice] | None:
        new = change.new
        if int(new.deal_id[-6:]) % 10:
            return None
        if Seen.failing:
            raise ValueError("a downstream is down")
        return Put(Notice(deal_id=new.deal_id, views=new.views))


def _watchers(seller: Seller) -> Query[Watch]:
    return Watch.query(brand=seller.brand)


def _fan_out(app: App) -> None:
    def audience(change: Change[Seller]) -> Query[Watch]:
        return _watchers(change.new)

    @app.fan_out(audience)
    def tell(change: Change[Seller], to: Watch) -> Put[Message]:
        new = change.new
        return Put(Message(number=to.number, brand=new.brand, city=new.city))


def _mirror(app: App) -> None:
    def seller_of(watch: Watch) -> Key[Seller]:
        return Seller.key(brand=watch.brand)

    @app.mirror(copies=_watchers, source=seller_of)
    def city(seller: Seller, watch: Watch) -> Set[Watch]:
        return Set(watch.item_key, city=seller.city)


HANDLERS: dict[str, Callable[[App], object]] = {
    "count": _count,
    "read": _read,
    "aggregate": lambda app: app.aggregate(Brand),
    "grouped": lambda app: app.aggregate(Shelf),
    "on": _put,
    "both": _both,
    "async": _put_async,
    "failing": _failing,
    "fan_out": _fan_out,
    "mirror": _mirror,
}
"""Kinds of handlers: those that write nothing first."""


def app_of(kind: str, times: int = 1) -> App:
    """Return an app with a handler of this kind, and as many like it as make `times` in all."""
    policy = Policy(attempts=1, retry_limit=0, breaker=False)
    app = App("deals", table=TABLE, entities=[Deal, Notice, Watch, Message], policy=policy)
    HANDLERS[kind](app)
    for number in range(1, times):

        @app.on(name=f"also_{number}")
        def also(change: Modified[Deal]) -> None:
            pass

    return app


@dataclass
class Consumer:
    """What another process may ask of the consumer; see `processes`."""

    running: "asyncio.Task[object]"
    made: list[Workers]
    sampler: Sampler = field(default_factory=Sampler)
    _began: float = 0.0

    async def mark(self, profile: bool = False) -> None:
        """Begin to count CPU time, and to take samples of where it goes."""
        if profile:
            self.sampler.start()
        self._began = time.process_time()

    async def finish(self, quiet: int = 2) -> float:
        """Wait until every shard had so many quiet pages; return the CPU seconds since `mark`.

        One is not enough: it may have been asked for before the server had more to give.
        """
        if self.made:
            self.made[0].count_anew()
        while not (self.made and self.made[0].is_idle(quiet)):
            if self.running.done():
                self.running.result()
                raise RuntimeError("the worker has ended")
            await asyncio.sleep(LOOK_SECONDS)
        seconds = time.process_time() - self._began
        self.sampler.stop()
        return seconds

    async def spent(self) -> float:
        """Return the CPU seconds since `mark`."""
        return time.process_time() - self._began

    async def idle(self, seconds: float) -> float:
        """Let the worker be for so long; return the CPU seconds that it used."""
        began = time.process_time()
        await asyncio.sleep(seconds)
        return time.process_time() - began

    async def seen(self) -> int:
        """Return how many changes the handler `count` was given."""
        return Seen.changes

    async def memory(self) -> int:
        """Return the bytes of memory that the process has at the moment."""
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    async def profile(self, lines: int) -> str:
        """Return where the time of samples went."""
        return self.sampler.report(lines)


@asynccontextmanager
async def consuming(
    url: str, kind: str, times: int = 1, settings: Mapping[str, Any] | None = None
) -> AsyncIterator[Consumer]:
    """Run a worker for an app with a kind of handler, against the server at `url`."""
    configure("json", "error")
    use_server(url)
    Seen.failing = kind == "failing"
    made: list[Workers] = []

    def make(*arguments: object, **named: object) -> Workers:
        made.append(Workers(*arguments, **named))
        return made[0]

    with mock.patch.object(cli, "Workers", make):
        work = cli.run_workers(
            [app_of(kind, times)], Settings(**(settings or {})), until_idle=False
        )
        task = asyncio.create_task(work)
        yield Consumer(task, made)
        for workers in made:
            workers.stop()
        await task
