"""Shards: a hook that an app may have called when a shard comes to one of its workers, or leaves.

    taken ──► drained      read to its end: its children follow
         ├──► released     given to another worker, or back when this one stops
         └──► lost         another worker has taken it; what went on here for it was cancelled

In: what happens to a shard. Out: calls of the hook, in order, in the worker's event loop. On
failure: an error of the hook is logged, and changes nothing.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from streamkit.errors import DeclarationError
from streamkit.observe.logger import get_logger

log = get_logger("streamkit.worker")

Turn = Literal["taken", "drained", "released", "lost"]


@dataclass(frozen=True, slots=True)
class ShardEvent:
    """What happened to a shard; `consumer` is the app's name, or `APP.NAME` of a listener."""

    what: Turn
    consumer: str
    shard: str


ShardHook = Callable[[ShardEvent], None]
"""Is called in the worker's event loop, so that it must not wait."""


def check_hook(hook: ShardHook | None) -> None:
    """Refuse what nobody would await.

    Raises:
        DeclarationError: it is a coroutine function.
    """
    if inspect.iscoroutinefunction(hook):
        raise DeclarationError("Telemetry(on_shard=...) is called and not awaited: make it a def")


def tell(hook: ShardHook | None, event: ShardEvent) -> None:
    """Call a hook, whatever it does."""
    if hook is None:
        return
    try:
        hook(event)
    except Exception as error:  # noqa: BLE001 - it is the application's
        log.warning("hook.failed", shard=event.shard, error=type(error).__name__)
