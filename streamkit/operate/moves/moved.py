"""Describe the result of a move: positions and marks, or the reasons why it was refused."""

from collections.abc import Iterable
from dataclasses import dataclass

from streamkit.app import App
from streamkit.core.handler import Handler
from streamkit.fleet.generation import Generation
from streamkit.model.json_fields import JsonFields
from streamkit.progress.operation import Refusal

OVERTAKEN = "another command moves, rewinds or rebuilds this consumer; try again"


class MoveRefused(Refusal):
    """The result of a move would be wrong; nothing was begun. `reasons` are for people."""


@dataclass(frozen=True, slots=True)
class Moved(JsonFields):
    """A consumer that has changed hosts, with the number of its shards and records.

    `records` counts those that the mover has read; `queues` counts parked queues, which stay so.
    """

    consumer: str
    host: str
    shards: int
    records: int
    queues: int


@dataclass(frozen=True, slots=True)
class Imported(JsonFields):
    """What leases became, or would become: shards by state, and notes for people."""

    consumer: str
    finished: int
    positions: int
    unread: int
    notes: tuple[str, ...]


def joins_by_rebuild(handler: Handler) -> str:
    """Return why an aggregate does not join its app as other handlers do."""
    return (
        f"{handler.declared}: an aggregate joins by a rebuild: delete its consumer, deploy,"
        " `streamkit aggregate rebuild`"
    )


def unfit(app: App, newest: Generation | None, *hosts: str) -> Iterable[str]:
    """Yield the reasons why this code cannot move a consumer now, or not from this host."""
    if newest is None:
        yield f"{app.name} has never run on this stream"
        return
    if newest.host not in hosts:
        yield f"{app.name} is not run by {hosts[0]}, but by {newest.host or 'no host'}"
    if newest.fingerprint != app.fingerprint():
        yield f"{app.name} is deployed with other handlers; move it with the code that is deployed"
    for name, build in newest.builds.items():
        if build.state != "live":
            yield f"aggregate {name} is being built; wait until that has ended"
