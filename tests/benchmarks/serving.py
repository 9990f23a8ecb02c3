"""The replay server: a stream whose pages lie ready, beside a real table.

It is the local engine over loopback HTTP, except that GetRecords answers with pages of bytes that
were made before. So a page costs the server no more than sending it, and the consumer reads as fast
as it can. A shard gives as many pages as it was told to, and is at its tip behind them.
"""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from streamkit.local.control import Control
from streamkit.local.engine import Engine
from streamkit.local.server import serve
from streamkit.local.stream_settings import StreamSettings
from tests.benchmarks.deals import FULL, Pages, image
from tests.tables import streamed

TABLE = "Deals"

_json = msgspec.json.Encoder().encode


class Replay(Engine):
    """An engine whose shards all have the same prepared pages; it counts what is asked of it."""

    def __init__(self, shards: int, records: int) -> None:
        settings = StreamSettings(roll_after=None, describe_rate=None)
        super().__init__(rng=random.Random(1), shards=shards, settings=settings)
        self.pages = Pages(records) if records else None
        self.limit = self.polls = 0
        self.units: dict[str, float] = {}
        self.calls: dict[str, int] = {}
        self.call("dynamodb", "CreateTable", streamed(TABLE, "PK", "SK"))

    def at(self, region: str | None = None, account: str | None = None) -> Self:
        """Return this engine for every Region and account."""
        return self

    def call_bytes(self, service: str, operation: str, payload: bytes) -> tuple[int, bytes]:
        """Answer the reads of shards from prepared pages; count what all other calls use."""
        self.polls += operation == "GetRecords"
        if self.pages is not None and operation == "GetRecords":
            return 200, self._page(msgspec.json.decode(payload)["ShardIterator"], self.pages)
        if self.pages is not None and operation == "GetShardIterator":
            return 200, self._open(msgspec.json.decode(payload), self.pages)
        answer = super().call_bytes(service, operation, payload)
        self.calls[operation] = self.calls.get(operation, 0) + 1
        for kind, units in self.meter.units().items():
            self.units[kind] = self.units.get(kind, 0.0) + units
        return answer

    def _open(self, request: dict[str, Any], pages: Pages) -> bytes:
        number = request.get("SequenceNumber")
        page = 0 if number is None else pages.page_after(number)
        return _json({"ShardIterator": _text(page)})

    def _page(self, iterator: str, pages: Pages) -> bytes:
        page = int(iterator.rpartition("|")[2])
        if page >= self.limit:
            return _json({"Records": [], "NextShardIterator": iterator})
        return pages.body(page, _text(page + 1))


def _text(page: int) -> str:
    """Return an iterator of about the length that those of AWS have."""
    return f"arn:aws:dynamodb:us-east-1:000000000000:table/{TABLE}/{'A' * 160}|1|{page}"


@dataclass
class Serving:
    """What another process may ask of the server; see `processes`."""

    url: str
    engine: Replay

    async def address(self) -> str:
        """Return the URL to connect to."""
        return self.url

    async def release(self, pages: int) -> int:
        """Let every shard give so many more pages; return how many it has given in all."""
        self.engine.limit += pages
        return self.engine.limit

    async def spent(self) -> dict[str, float]:
        """Return what was used so far: polls, calls by name, and capacity units."""
        spent = {f"calls.{name}": float(count) for name, count in self.engine.calls.items()}
        spent |= {f"units.{kind}": units for kind, units in self.engine.units.items()}
        return spent | {"polls": float(self.engine.polls)}

    async def total(self, prefix: str, attribute: str) -> int:
        """Return the sum of an attribute over the items whose partition key begins so."""
        return sum(int(item[attribute]["N"]) for item in self._found(prefix))

    async def count(self, prefix: str, attribute: str = "", value: str = "") -> int:
        """Return how many items have a partition key that begins so, and an attribute's value."""
        found = self._found(prefix)
        return sum(not attribute or item[attribute] == {"S": value} for item in found)

    async def put(self, items: list[dict[str, Any]]) -> None:
        """Write items, in wire form."""
        for item in items:
            status, body = self.engine.call(
                "dynamodb", "PutItem", {"TableName": TABLE, "Item": item}
            )
            assert status == 200, body

    async def put_deals(self, number: int) -> None:
        """Write so many deals, so long ago that the stream does not remember it."""
        await self.put([image(n, "PLACED") for n in range(number)])
        Control(self.engine).trim(TABLE)

    def _found(self, prefix: str) -> list[dict[str, Any]]:
        found, start = [], {}
        while True:
            _, body = self.engine.call("dynamodb", "Scan", {"TableName": TABLE, **start})
            found += [item for item in body["Items"] if item["PK"]["S"].startswith(prefix)]
            if "LastEvaluatedKey" not in body:
                return found
            start = {"ExclusiveStartKey": body["LastEvaluatedKey"]}


@asynccontextmanager
async def serving(shards: int = 1, records: int = FULL) -> AsyncIterator[Serving]:
    """Serve a stream of prepared pages on a port of its own."""
    engine = Replay(shards, records)
    async with await serve(engine, expire_every=None) as server:
        yield Serving(server.url, engine)
