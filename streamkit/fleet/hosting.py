"""Hosting: whether workers or Lambda functions run a consumer, never both.

Workers know from their cursors what is done, functions from the items' high-water marks; neither
reads what the other keeps. So the consumer's item names its host, from its founding or its first
batch on, and the other host refuses to begin. `operate.moves` changes hosts; during a move the item
names the direction instead. While a consumer is being deleted or replays to the end, or once its
handler has joined the app or was taken over by it, no host may begin.

The item also says that the consumer is paused: functions read it with each batch, and nothing else.
Workers see the pause in their member list.

In: a consumer's control items. Out: the name. On failure: `ConfigurationError` says what to do.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import msgspec

from streamkit.errors import ConfigurationError, LeaseLost
from streamkit.model.builds import Build, read_builds
from streamkit.model.conditions import Attr
from streamkit.progress.actions import Action
from streamkit.progress.cursor import CursorStore
from streamkit.progress.operation import Operation

WORKERS: Final = "workers"
LAMBDA: Final = "lambda"
TO_WORKERS: Final = "to workers"
TO_LAMBDA: Final = "to lambda"
FROM_KCL: Final = "from kcl"
DELETING: Final = "being deleted"
TAKING_OVER: Final = "workers, while the app takes a handler over"
JOINING: Final = "joining its app"
JOINED: Final = "joined its app"
TAKEN: Final = "taken over by its app"
REPLAYING: Final = "replaying to the end"
ENDED: Final = (JOINED, TAKEN)
"""The hosts of a consumer that has nothing to do any more, because its app runs its handler."""

FUNCTION_SECONDS = 900.0
"""The longest that Lambda lets a function run."""

_COMMANDS = {
    WORKERS: "workers run it; `streamkit consumers to-lambda` moves it to Lambda",
    LAMBDA: "Lambda functions run it; `streamkit consumers to-workers` moves it to workers",
    TO_WORKERS: "it is being moved; `streamkit consumers to-workers` finishes that",
    TO_LAMBDA: "it is being moved; `streamkit consumers to-lambda` finishes that",
    FROM_KCL: "it is being imported; `streamkit consumers import-kcl` finishes that",
    DELETING: "it is being deleted; `streamkit consumers delete` finishes that",
    TAKING_OVER: "the app takes a handler over; `streamkit status` says how far it is",
    JOINING: "its handler joins the app; `streamkit consumers join` finishes that, or gives it up",
    REPLAYING: "changes run again in it; `streamkit replay ... --to-end` goes on with that",
    TAKEN: "its app has taken its handler over",
    JOINED: "its handler has joined the app: deploy the version without its start=",
}

_EMPTY = {"S": ""}


class Hosted(msgspec.Struct, frozen=True):
    """What a host reads in the consumer's item when it begins; empty if there is no consumer.

    `host` is what runs it; empty if no host has begun. `paused` is since when it must do nothing
    (epoch seconds), 0 if it is not paused.
    """

    host: str
    incarnation: str
    fingerprint: str
    builds: Mapping[str, Build]
    paused: int


def check_host(consumer: str, there: str, wanted: str) -> None:
    """Refuse to run a consumer that has another host.

    Args:
        consumer: its name.
        there: its host; empty if none has begun.
        wanted: the host that wants to run it; empty if none does.

    Raises:
        ConfigurationError: it has another host, or is being moved.
    """
    if there in (TAKING_OVER, TAKEN) and wanted == WORKERS:
        return  # an older streamkit does not know these hosts, and does not begin
    if wanted and there not in ("", wanted):
        raise ConfigurationError(f"consumer {consumer}: {_COMMANDS.get(there, there)}")


async def host_of(store: CursorStore) -> str:
    """Read the host of a consumer, strongly consistent; empty if it has none yet."""
    return (await look(store)).host


async def look(store: CursorStore) -> Hosted:
    """Read the consumer's item, strongly consistent."""
    item: Mapping[str, Any] = await store.item("consumer") or {}
    return Hosted(
        host=item.get("host", _EMPTY)["S"],
        incarnation=item.get("incarnation", _EMPTY)["S"],
        fingerprint=item.get("fingerprint", _EMPTY)["S"],
        builds=read_builds(item["builds"]["S"]) if "builds" in item else {},
        paused=int(item["paused"]["N"]) if "paused" in item else 0,
    )


async def claim(store: CursorStore, host: str) -> Hosted:
    """Become the host of a consumer that exists, if it has none; return what is known of its host.

    Raises:
        ConfigurationError: it has another host, or is being moved.
    """
    found = await look(store)
    if not found.host:
        await set_host(store, "", host)
        found = await look(store)
    check_host(store.space.consumer, found.host, host)
    return found


async def set_host(store: CursorStore, before: str, after: str) -> bool:
    """Change a consumer's host, IF it is as it was read; return whether it was."""
    operation = Operation(store, partial(host_of, store), partial(_hosting, store))
    try:
        await operation.step(before, after)
    except LeaseLost:
        return False
    return True


def _hosting(store: CursorStore, before: str, after: str) -> Action:
    action = store.space.update("consumer")
    action.sets["host"] = {"S": after}
    name = Attr("host")
    as_read = name.eq(before) if before else name.not_exists()
    return action.only_if(Attr("generation").exists() & as_read)
