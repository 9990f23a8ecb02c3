"""Print parked changes, their queues and handlers, and the results of retries."""

import inspect
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from streamkit.cli.printing import moment, say, table
from streamkit.core.handler import Handler
from streamkit.core.parked.queues import ParkedQueue
from streamkit.core.parking import Parked
from streamkit.operate.redrive import QueueReport

_QUALIFIED = re.compile(r"\b(\w+\.)+(?=\w)")
"""Matches the modules before a name, and the functions that a class was declared in."""
_SHOWN = 40
"""This many parked changes are listed in the text output."""


def describe_parked(
    parked: Sequence[Parked],
    queues: Mapping[str, ParkedQueue],
    served: Mapping[str, int],
    *,
    chosen: bool,
) -> None:
    """Print parked changes, queue by queue; the first has its next try.

    `served`: the queues of fan-outs that no failure holds up, with their changes.
    `chosen`: filters have chosen these, so there may be others.
    """
    rows = [
        (
            change.queue,
            change.handler,
            change.entity,
            change.error or _standing(change, queues.get(change.queue), served),
            str(change.attempts),
            *_next_try(change, queues.get(change.queue)),
            moment(change.at),
            change.position.lstrip("0"),
        )
        for change in parked
    ]
    if not rows:
        say("no such change is parked" if chosen else "no change is parked")
        return
    heads = ("queue", "handler", "entity", "error", "attempts", "tries", "due (UTC)")
    table(
        (*heads, "parked at (UTC)", "position"),
        rows[:_SHOWN],
        drop=("position", "entity", "attempts", "parked at (UTC)"),
        cut=("handler", "error"),
    )
    if len(rows) > _SHOWN:
        say(
            f"and {len(rows) - _SHOWN} more: --handler, --queue and others choose, --json shows all"
        )
    failed = Counter(f"{change.handler} {change.error}" for change in parked if change.error)
    said = ", ".join(f"{count} of {name}" for name, count in failed.most_common())
    held, own = {change.queue for change in parked}, len(rows) - sum(served.values())
    untried = ": none of them has been tried yet" if own else ""
    say(
        f"{own} parked in {len(held) - len(served)} queues{f': {said}' if said else untried}"
        f"{fanned_out(served)}"
    )


def fanned_out(served: Mapping[str, int]) -> str:
    """Return the end of a line that counts what is parked: the changes of fan-outs under way."""
    total = sum(served.values())
    return f"; {total} changes in {len(served)} fan-outs under way" if served else ""


def _standing(change: Parked, queue: ParkedQueue | None, served: Mapping[str, int]) -> str:
    """Return what a change that has not failed waits for."""
    first = queue is not None and queue.head == change.position
    return "is served" if first and change.queue in served else "waits behind"


def _next_try(change: Parked, queue: ParkedQueue | None) -> tuple[str, str]:
    """Return how often a change was tried since it was parked, and the time of its next try."""
    if queue is None or queue.head != change.position:
        return "-", "-"
    due = moment(queue.due) if queue.due else "at once"
    return str(queue.tries), "stuck" if queue.stuck else due


def parked_fields(change: Parked, queue: ParkedQueue | None = None) -> dict[str, Any]:
    """Return a parked change in JSON's types, with its record if that was read.

    If its parked queue is given, the first change of the queue has `due` (epoch seconds,
    null if stuck), `tries` and `stuck`; the changes behind it have nulls.
    """
    fields: dict[str, Any] = msgspec.to_builtins(change)
    fields["record"] = msgspec.json.decode(change.record) if change.record else None
    if queue is not None:
        first = queue.head == change.position
        fields["due"] = queue.due if first and not queue.stuck else None
        fields["tries"] = queue.tries if first else None
        fields["stuck"] = queue.stuck if first else None
    return fields


def call_of(handler: Handler | None) -> str | None:
    """Return a handler with its arguments by name, and where it was written; None without one."""
    if handler is None:
        return None
    if not inspect.isfunction(handler.run):
        return str(handler.declared)
    signature = inspect.signature(handler.run).replace(return_annotation=inspect.Signature.empty)
    place = f"{Path(handler.declared.file).name}:{handler.declared.line}"
    return f"{handler.declared.name}{_QUALIFIED.sub('', str(signature))} ({place})"


def describe_report(report: QueueReport, verb: str) -> None:
    """Print the result for one parked queue."""
    say(f"queue {report.queue} ({report.handler}): {report.done} {verb}")
    if report.failure is not None:
        say(f"  the next one failed: {report.failure.kind}: {report.failure.detail}")
        stuck = report.due is None
        due = f"{moment(report.due)} UTC" if report.due else "at once"
        say("  it is stuck" if stuck else f"  it is due {due}")
