"""Verdicts: scripts learn whether a status is fine; an unknown fact is not fine."""

from collections.abc import Iterator
from typing import NoReturn

from streamkit.app import App
from streamkit.cli.describe_parked import fanned_out
from streamkit.cli.exits import ExitCode
from streamkit.cli.printing import moment, tell
from streamkit.cli.running import exit_with, settings, with_aws
from streamkit.fleet.hosting import ENDED, LAMBDA, WORKERS
from streamkit.operate.fan_outs import serving
from streamkit.operate.remaining import is_alive
from streamkit.operate.status import Status


def exit_by(app: App, status: Status, *, may_start: bool = True) -> NoReturn:
    """End `status --exit-code`: print the reasons on stderr and exit with the code."""
    alive = with_aws(lambda aws: is_alive(app, aws, settings().lease))
    code, reasons = verdict(status, alive=alive, may_start=may_start)
    for reason in reasons:
        tell(f"not fine: {reason}")
    exit_with(code)


def verdict(status: Status, *, alive: bool, may_start: bool = True) -> tuple[ExitCode, list[str]]:
    """Return the exit code of `status --exit-code`, and all reasons; the worst reason decides.

    Args:
        status: the consumer's status.
        alive: whether a worker's heartbeat was seen to change; clocks are not compared.
        may_start: whether the table has had the migrations that the code needs.
    """
    found = [*_lost(status)]
    if status.generation is None:
        found.append((ExitCode.PROBLEMS, status.unbegun))
    else:
        problems = ((ExitCode.PROBLEMS, reason) for reason in _problems(status, alive))
        found += [*_paused(status), *problems]
    if not may_start:
        text = "a migration is missing without which no worker starts; `streamkit check` names it"
        found.append((ExitCode.PROBLEMS, text))
    code = found[0][0] if found else ExitCode.OK
    return code, [reason for _, reason in found]


def _lost(status: Status) -> Iterator[tuple[ExitCode, str]]:
    if status.lost or status.lost_shards:
        of = ", ".join(status.lost_shards) or "the whole stream"
        yield ExitCode.RETENTION_LOST, f"changes may have been lost, of {of}"
    for one in status.halts:
        at = f"{moment(one.since)} UTC"
        yield ExitCode.RETENTION_LOST, f"{one.consumer} halted at its start at {at}: {one.why}"


def _paused(status: Status) -> Iterator[tuple[ExitCode, str]]:
    if status.paused:
        yield ExitCode.PAUSED, f"it has been paused since {moment(status.paused)} UTC"


def _problems(status: Status, alive: bool) -> Iterator[str]:
    if status.host == WORKERS:
        if not alive:
            yield "no worker is alive"
        if status.lag_seconds is None:
            yield "its lag is not known"
    elif status.host not in (LAMBDA, *ENDED):
        yield f"it is being moved ({status.host}); repeat the command that began the move"
    served = serving(status.fan_outs)
    if parked := sum(status.parked.values()):
        queues = f"{status.parked_queues - len(served)} queues, {status.stuck_queues} stuck"
        own = parked - sum(served.values())
        yield f"{own} changes are parked in {queues}{fanned_out(served)}"
    for shard in status.shards:
        if shard.waits_for:
            yield f"{shard.name} waits for {', '.join(shard.waits_for)}, which fails on a change"
    yield from status.refused
    if status.needs_rebuild:
        yield f"needs rebuild: {', '.join(status.needs_rebuild)}"
