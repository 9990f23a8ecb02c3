"""Watching: a status is shown repeatedly, until it is interrupted.

In: a function that reads a status. Out: with rich on a terminal one display that is updated, else a
line for each status, as text or as JSON. An error ends it as it ends a single look; earlier output
stays.
"""

import contextlib
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import anyio

from streamkit.cli.describing import describe_status
from streamkit.cli.printing import is_rich, say, seconds
from streamkit.operate.status import ShardStatus, Status
from streamkit.progress.clock import SystemClock, utc

Look = Callable[[], Awaitable[Status]]


async def watch_status(look: Look, every: float, looks: int | None, *, as_json: bool) -> None:
    """Show the status every `every` seconds: `looks` times, or for ever if that is None."""
    if as_json:
        async for status in _looks(look, every, looks):
            say(json.dumps(status.to_dict(), default=str, ensure_ascii=False))
    elif is_rich():
        await _live(_looks(look, every, looks))
    else:
        async for status in _looks(look, every, looks):
            say(_line(status))


async def _looks(look: Look, every: float, looks: int | None) -> AsyncIterator[Status]:
    seen = 0
    while True:
        yield await look()
        seen += 1
        if seen == looks:
            return
        await anyio.sleep(every)


async def _live(found: AsyncIterator[Status]) -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False) as live:
        async for status in found:
            live.update(Text(f"{_now()} UTC\n{_text(status)}", no_wrap=True), refresh=True)


def _text(status: Status) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        describe_status(status)
    return out.getvalue().rstrip("\n")


def _line(status: Status) -> str:
    if status.generation is None:
        return f"{_now()} {status.consumer}: no worker has run yet"
    unfinished = [shard for shard in status.shards if shard.state != "finished"]
    throttled = sum(worker.throttled for worker in status.workers)
    parts = [
        f"{_now()} {status.consumer}",
        f"lag {seconds(status.lag_seconds)}{_slowest(unfinished)}",
        f"loss in {seconds(status.time_to_loss_seconds)}",
        f"{len(unfinished)} shards",
        f"{len(status.workers)} workers, {throttled} throttled calls",
        f"{sum(status.parked.values())} parked, {status.stuck_lanes} stuck",
    ]
    flags = [
        "paused" if status.paused else "",
        "LOST" if status.lost or status.lost_shards else "",
        f"needs rebuild: {', '.join(status.needs_rebuild)}" if status.needs_rebuild else "",
    ]
    return "; ".join([*parts, *filter(None, flags)])


def _slowest(shards: Sequence[ShardStatus]) -> str:
    """Name the shard that is furthest behind, if one is."""
    behind = [shard for shard in shards if shard.lag_seconds]
    if not behind:
        return ""
    last = max(behind, key=lambda shard: shard.lag_seconds or 0.0)
    waits = f", waits for {', '.join(last.waits_for)}" if last.waits_for else ""
    return f" ({last.name}, {last.owner or 'no worker reads it'}{waits})"


def _now() -> str:
    return utc(int(SystemClock().time())).strftime("%H:%M:%S")
