"""Shards: an app's hook is called when one of its workers takes a shard or stops reading it.

    taken ──► drained      the shard is read to its end: its children follow
         ├──► released     given to another worker, or free because this one stops
         └──► lost         another worker has taken it; this worker's tasks for it were cancelled

In: what happens to a shard. Out: calls of the hook, in order, in the worker's event loop. On
failure: an error of the hook is logged and changes nothing.
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
    """One event of a shard; `consumer` is the app's name, or `APP.NAME` of a listener."""

    what: Turn
    consumer: str
    shard: str


ShardHook = Callable[[ShardEvent], None]
"""The hook is called in the worker's event loop, so it must not block."""


def check_hook(hook: ShardHook | None) -> None:
    """Refuse a coroutine function, because nothing would await it.

    Raises:
        DeclarationError: the hook is a coroutine function.
    """
    if inspect.iscoroutinefunction(hook):
        raise DeclarationError("Telemetry(on_shard=...) is called and not awaited: make it a def")


def tell(hook: ShardHook | None, event: ShardEvent) -> None:
    """Call a hook; log its error, if it raises one."""
    if hook is None:
        return
    try:
        hook(event)
    except Exception as error:  # noqa: BLE001 - it is the application's code
        log.warning("hook.failed", shard=event.shard, error=type(error).__name__)
