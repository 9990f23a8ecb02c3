"""Reading a long archive: how fast, and whether memory stays flat. `make archive CHANGES=10000000`.

One shard with so many changes is written to a directory, in links of the usual size, as its writer
stores them. Then all of it is read as a replay reads it. The memory of the process is looked at
after a tenth, and at the end: it must not have grown by more than 16 MB.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import anyio
import msgspec

from streamkit import App
from streamkit.archive import DirectoryArchive
from streamkit.archive.link import ORIGIN, Lines
from streamkit.archive.shards import ArchivedShards
from streamkit.aws import connect
from streamkit.core.tables import survey
from streamkit.local.engine import Engine
from streamkit.local.transport import session_class
from streamkit.observe.memory import used_bytes
from streamkit.operate.past.past import PastChanges, open_past
from streamkit.stream.decode import Record, parse_page
from streamkit.stream.decode.envelope import POSITION_DIGITS
from streamkit.testing.harness import table_of
from tests.benchmarks.deals import page_body

SHARD = "shardId-00000000000000000001-archived"
GROWTH_BYTES = 16_000_000
_PER_LINK = 40_000


def records(first: int, count: int, like: tuple[Record, ...], now: float) -> list[Record]:
    """Return changes like others, with positions that go on from one."""
    found = []
    for number in range(first, first + count):
        one = like[number % len(like)]
        inner = msgspec.structs.replace(one.dynamodb, sequence_number=str(number), created_at=now)
        found.append(msgspec.structs.replace(one, dynamodb=inner))
    return found


async def write(archive: ArchivedShards, changes: int) -> None:
    """Store a shard with so many changes, and its end."""
    chain, like, now = archive.chain(SHARD), parse_page(page_body(0)).records, time.time()
    await archive.begin(now)
    await archive.note(SHARD, None)
    after, first = ORIGIN, 1
    while first <= changes:
        count = min(_PER_LINK, changes - first + 1)
        lines = Lines()
        lines.add(records(first, count, like, now))
        first += count
        last = f"{first - 1:0{POSITION_DIGITS}}"
        link = msgspec.structs.replace(
            chain.link(after, last), kind="end" if first > changes else "data"
        )
        await chain.add(link, lines)
        after = last


async def read(past: PastChanges, changes: int) -> tuple[int, float, int]:
    """Read all of the shard; return how many changes, in what CPU time, and how memory grew."""
    seen, early, began = 0, 0, time.process_time()
    async for page in past.pages(SHARD):
        seen += len(page.records)
        if not early and seen >= changes // 10:
            early = int(used_bytes())
    return seen, time.process_time() - began, int(used_bytes()) - early


async def run(changes: int, folder: Path) -> int:
    """Write and read; return the exit code."""
    app = App("archived", table="Deals", archive=DirectoryArchive(folder))
    async with connect(http_session=session_class(Engine())) as aws:
        await aws.dynamodb.create_table(**table_of(app))
        tables = await survey(app, aws)
        async with app.archive.opened() as objects:
            label = tables.store(app.writer, aws).space.label
            await write(ArchivedShards(objects, f"{app.table}/{label}"), changes)
        size = sum(file.stat().st_size for file in folder.rglob("*.gz"))
        async with open_past(app, aws) as (past, _):
            seen, seconds, grown = await read(past, changes)
    print(
        f"{seen:,} changes in {size / 1e6:,.0f} MB: {seen / seconds:,.0f} a CPU second;"
        f" memory grew by {grown / 1e6:,.1f} MB after the first tenth"
    )
    return int(seen != changes or grown > GROWTH_BYTES)


def main() -> int:
    """Run it with the number that the command line gives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=10_000_000)
    changes = parser.parse_args().changes
    with tempfile.TemporaryDirectory() as folder:
        return anyio.run(run, changes, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
