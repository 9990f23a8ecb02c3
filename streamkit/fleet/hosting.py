"""Hosting: whether workers or Lambda functions run a consumer. Never both.

Workers know what is done by their cursors, functions by marks of items; neither looks at what the
other keeps. So the consumer's item names its host, from its founding or its first batch on, and
the other host refuses to begin. `moving` changes hosts; meanwhile the name is of the direction.

In: a consumer's control items. Out: the name. On failure: `ConfigurationError` says what to do.
"""

from typing import Final

from streamkit.actions import OURS
from streamkit.cursor import CursorStore
from streamkit.effects import Guard
from streamkit.errors import ConfigurationError, LeaseLost
from streamkit.model.conditions import Attr

WORKERS: Final = "workers"
LAMBDA: Final = "lambda"
TO_WORKERS: Final = "to workers"
TO_LAMBDA: Final = "to lambda"
FROM_KCL: Final = "from kcl"

_COMMANDS = {
    WORKERS: "workers run it; `streamkit consumers to-lambda` moves it to Lambda",
    LAMBDA: "Lambda functions run it; `streamkit consumers to-workers` moves it to workers",
    TO_WORKERS: "it is being moved; `streamkit consumers to-workers` finishes that",
    TO_LAMBDA: "it is being moved; `streamkit consumers to-lambda` finishes that",
    FROM_KCL: "it is being imported; `streamkit consumers import-kcl` finishes that",
}


def check_host(consumer: str, there: str, wanted: str) -> None:
    """Refuse to run a consumer that has another host.

    Args:
        consumer: its name.
        there: its host; empty if none has begun.
        wanted: who wants to run it; empty if nothing is to be run.

    Raises:
        ConfigurationError: it has another one, or is being moved.
    """
    if wanted and there not in ("", wanted):
        raise ConfigurationError(f"consumer {consumer}: {_COMMANDS.get(there, there)}")


async def host_of(store: CursorStore) -> str:
    """Read who runs a consumer, strongly consistent; empty if it is nobody yet."""
    item = await store.item("consumer")
    return "" if item is None or "host" not in item else str(item["host"]["S"])


async def claim(store: CursorStore, host: str) -> None:
    """Become the host of a consumer that exists, if it has none.

    Raises:
        ConfigurationError: it has another one, or is being moved.
    """
    there = await host_of(store)
    if not there:
        there = host if await set_host(store, "", host) else await host_of(store)
    check_host(store.space.consumer, there, host)


async def set_host(store: CursorStore, before: str, after: str) -> bool:
    """Change a consumer's host, IF it is as it was read; say whether it was."""
    action = store.space.update("consumer")
    action.sets["host"] = {"S": after}
    name = Attr("host")
    as_read = name.eq(before) if before else name.not_exists()
    action.guards.append((Guard(Attr("generation").exists() & as_read), OURS))
    try:
        await store.write(action)
    except LeaseLost:
        # The SDK repeats a call whose reply was lost.
        return await host_of(store) == after
    return True
