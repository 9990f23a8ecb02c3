"""Following up: the command that a report ends with, if a person has to act. Pure."""

from streamkit.fleet.hosting import WORKERS
from streamkit.operate.explanation import Explanation
from streamkit.operate.inspection import AppInspection
from streamkit.operate.status import Status


def after_status(status: Status) -> tuple[str, ...]:
    """Return the command that follows a status, and its options; empty if all is well.

    What stops all changes comes first, then what delays some, then what is wrong already.
    """
    if any(one.consumer == status.consumer for one in status.halts):
        return ("check",)
    if status.generation is None or (not status.workers and status.host == WORKERS):
        return ("worker",)
    if status.paused:
        return ("consumers resume",)
    if status.stuck_queues:
        return ("parked list", "--stuck")
    if status.parked:
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


def after_explanation(found: Explanation) -> tuple[str, ...]:
    """Return the command that shows an item's first parked change; empty if none is parked."""
    for one in found.listening:
        if one.parked:
            listener = one.consumer.partition(".")[2]
            of = ("--listener", listener) if listener else ()
            return ("parked show", "--queue", one.queue, *of)
    return ()
