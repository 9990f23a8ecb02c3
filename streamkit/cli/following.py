"""Following up: the command that a report ends with, if a person has to act. Pure."""

import re
from collections.abc import Collection, Iterator, Sequence

from streamkit.app import App
from streamkit.core.parking import Parked
from streamkit.fleet.hosting import WORKERS
from streamkit.operate.explanation import Explanation
from streamkit.operate.fan_outs import serving
from streamkit.operate.inspection import AppInspection
from streamkit.operate.status import Status


def after_status(status: Status, needed: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the command that follows a status, and its options; empty if all is well.

    What stops all changes comes first, then what delays some, then what is wrong already. `needed`
    is the command without which this code refuses to start, as worker or as function.
    """
    if any(one.consumer == status.consumer for one in status.halts):
        return ("check",)
    alive = [worker.state for worker in status.workers if not worker.silent]
    if needed and (status.generation is None or not alive):
        return needed
    if status.generation is None or (not alive and status.host == WORKERS):
        return ("worker",)
    if status.paused:
        return ("consumers resume",)
    if alive and set(alive) == {"waiting"}:
        return ("status", "--watch")
    if status.stuck_queues:
        return ("parked list", "--stuck")
    if sum(status.parked.values()) > sum(serving(status.fan_outs).values()):
        return ("parked list",)
    if status.needs_rebuild:
        return ("aggregate rebuild", status.needs_rebuild[0])
    if status.lost or status.lost_shards or status.halts:
        return ("check",)
    return ("status", "--watch") if status.unread_shards else ()


def after_check(found: AppInspection) -> tuple[str, ...]:
    """Return the command that prints the permissions, if one is missing."""
    refused = any(permission.allowed is False for permission in found.permissions)
    return ("iam",) if refused else ()


def after_parked(found: Sequence[Parked], served: Collection[str]) -> Iterator[tuple[str, ...]]:
    """Yield the commands that show and retry what is parked beside the fan-outs that are served."""
    queues = [change.queue for change in found if change.queue not in served]
    if queues:
        yield ("parked show", "--queue", queues[0])
        yield ("parked redrive", "--all")
    elif found:
        yield ("fan-outs list",)


def after_explanation(found: Explanation) -> tuple[str, ...]:
    """Return the command that shows an item's first parked change; empty if none is parked."""
    for one in found.listening:
        if one.parked:
            listener = one.consumer.partition(".")[2]
            of = ("--listener", listener) if listener else ()
            return ("parked show", "--queue", one.queue, *of)
    return ()


def after_discard(app: App, handlers: Collection[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what discarded changes of these handlers leave wrong, and the command that mends it.

    There is no command for an approximate aggregate, which cannot be rebuilt.
    """
    approximate = {one.__name__ for one in app.aggregates if one.__options__.approximate}
    for handler in app.handlers:
        name, entity = handler.name, handler.entity.__name__
        if name not in handlers:
            continue
        again = f"{re.sub(r'[^a-z0-9]+', '_', name.lower()).strip('_')}_again"
        if name in approximate:
            yield f"{name} is approximate: it lacks what was discarded, for good", ()
        elif handler.is_aggregate:
            text = f"{name} lacks what was discarded, and needs a rebuild"
            yield text, ("aggregate rebuild", name)
        elif handler.is_mirror:
            text = f"copies of {name} may be out of date until each {entity} is written once more"
            yield text, ("migrate new", again, "--mode", "touch", "--entity", entity)
        elif handler.converges:
            text = (
                f"items of {name} may be missing or left over until each {entity} changes; to put"
                f" those that are missing, return what {name} returns, with owner={name!r}"
            )
            yield text, ("migrate new", again, "--mode", "derive", "--entity", entity)
