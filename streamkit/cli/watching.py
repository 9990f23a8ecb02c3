"""Watching: a status is shown repeatedly, until it is interrupted.

In: a function that reads a status. Out: with rich on a terminal one display that is updated, else a
line for each status, as text or as JSON. What has changed since the look before stands below: the
last few changes on a display, those of one look after its line. An error ends it as it ends a
single look; earlier output stays.
"""

import contextlib
import io
import json
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial

from streamkit.app import App
from streamkit.aws import Aws
from streamkit.cli.describing import describe_status
from streamkit.cli.printing import clock_text, is_rich, say, seconds
from streamkit.cli.running import looks_at
from streamkit.operate.fan_outs import Audiences
from streamkit.operate.remaining import catches_up_in
from streamkit.operate.shards import ShardStatus
from streamkit.operate.status import Status, read_status
from streamkit.progress.clock import Clock, SystemClock

_LOOKS = 30
"""The pace of a backlog is that of this many looks."""

_KEPT = 10
"""A display shows this many changes, the newest first."""


async def watch_app(
    app: App,
    aws: Aws,
    *,
    every: float,
    looks: int | None,
    as_json: bool,
    look_into_stream: bool,
) -> None:
    """Show the status of an app every `every` seconds; the audiences of fan-outs are counted once.

    Raises:
        ConfigurationError: the table is missing or has no stream, or may not be described.
    """
    audiences = Audiences(app, aws)
    look = partial(read_status, app, aws, look_into_stream=look_into_stream, audiences=audiences)
    found = looks_at(look, every, looks)
    if as_json:
        async for status in found:
            say(json.dumps(status.to_dict(), default=str, ensure_ascii=False))
    elif is_rich():
        await _live(found)
    else:
        before, lags = None, Lags()
        async for status in found:
            say("; ".join([_line(status), *_changes(before, status), *lags.note(status)]))
            before = status


async def _live(found: AsyncIterator[Status]) -> None:
    from rich.live import Live
    from rich.text import Text

    before, lags, news = None, Lags(), deque[str](maxlen=_KEPT)
    with Live(auto_refresh=False) as live:
        async for status in found:
            news.extendleft(f"{clock_text()} {change}" for change in _changes(before, status))
            before = status
            shown = [f"{clock_text()} UTC", _text(status), *lags.note(status), "", *news]
            text = "\n".join(shown).rstrip()
            live.update(Text.from_ansi(text, no_wrap=True), refresh=True)


class Lags:
    """The lags of the last looks, which tell when a backlog will have been read."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._seen = deque[tuple[float, float]](maxlen=_LOOKS)

    def note(self, status: Status) -> list[str]:
        """Note a look; return when all is read, unless that is now or does not come nearer."""
        if status.lag_seconds is None:
            self._seen.clear()
            return []
        self._seen.append((self._clock.monotonic(), status.lag_seconds))
        left = catches_up_in(self._seen)
        return [] if left is None else [f"all is read in {seconds(left)}"]


class _Terminal(io.StringIO):
    """Text that is drawn on a terminal later: with its width and colours."""

    def isatty(self) -> bool:
        return True


def _text(status: Status) -> str:
    with contextlib.redirect_stdout(_Terminal()) as out:
        describe_status(status)
    return out.getvalue().rstrip("\n")


def _changes(before: Status | None, now: Status) -> list[str]:
    """Return what has changed since the look before, in words; nothing at the first look."""
    return [] if before is None else list(differences(before, now))


def differences(before: Status, now: Status) -> Iterator[str]:
    """Yield what differs between two looks: numbers with their difference, owners, waits."""
    for name, old, new in (
        ("lag", round(before.lag_seconds or 0), round(now.lag_seconds or 0)),
        ("parked", sum(before.parked.values()), sum(now.parked.values())),
        ("stuck", before.stuck_queues, now.stuck_queues),
        ("generation", before.generation or 0, now.generation or 0),
    ):
        if old != new:
            yield f"{name} {new} ({new - old:+})"
    if bool(before.paused) != bool(now.paused):
        yield "paused" if now.paused else "resumed"
    yield from _workers_changed(before, now)
    yield from _shards_changed(before, now)


def _workers_changed(before: Status, now: Status) -> Iterator[str]:
    old = {worker.name: worker for worker in before.workers}
    new = {worker.name: worker for worker in now.workers}
    yield from (f"worker {name} came" for name in new if name not in old)
    yield from (f"worker {name} left" for name in old if name not in new)
    for name in new.keys() & old.keys():
        if new[name].silent and not old[name].silent:
            yield f"worker {name} is silent"
        if new[name].throttled > old[name].throttled:
            yield f"{new[name].throttled - old[name].throttled} calls of {name} throttled"


def _shards_changed(before: Status, now: Status) -> Iterator[str]:
    old = {shard.name: shard for shard in before.shards}
    for shard in now.shards:
        known = old.get(shard.name)
        if known is None:
            yield f"{shard.name} is new"
        elif shard.state != known.state:
            yield f"{shard.name} is {shard.state}"
        elif shard.owner != known.owner:
            yield f"{shard.name} is read by {shard.owner or 'no worker'}"
        elif shard.waits_for != known.waits_for:
            waited = ", ".join(shard.waits_for)
            yield f"{shard.name} waits for {waited or 'no handler any more'}"


def _line(status: Status) -> str:
    if status.generation is None:
        return f"{clock_text()} {status.consumer}: {status.unbegun}"
    unfinished = [shard for shard in status.shards if shard.state != "finished"]
    throttled = sum(worker.throttled for worker in status.workers)
    parts = [
        f"{clock_text()} {status.consumer}",
        f"lag {seconds(status.lag_seconds)}{_slowest(unfinished)}",
        f"loss in {seconds(status.time_to_loss_seconds)}",
        f"{len(unfinished)} shards",
        f"{len(status.workers)} workers, {throttled} throttled calls",
        f"{sum(status.parked.values())} parked, {status.stuck_queues} stuck",
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
