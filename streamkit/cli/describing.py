"""Describing: the text output of `status`, `check` and `parked`."""

from collections.abc import Iterable, Iterator, Sequence

from streamkit.archive.completeness import ArchiveCheck
from streamkit.cli.describe_parked import fanned_out
from streamkit.cli.printing import BAD, WARN, moment, say, seconds, table
from streamkit.errors import some_of
from streamkit.fleet.hosting import ENDED, LAMBDA, WORKERS
from streamkit.operate.fan_outs import FanOutStatus, serving
from streamkit.operate.inspection import AppInspection
from streamkit.operate.shards import ShardStatus
from streamkit.operate.status import Status, WorkerStatus

_MARKS = {True: "ok", False: "REFUSED", None: "not tried"}


_BEHIND_SECONDS = 60.0
"""A consumer that is further behind is told what may slow it down."""


def _role(worker: WorkerStatus) -> str:
    if worker.silent:
        return "silent"
    if worker.late:
        return "late"
    if worker.state == "waiting":
        return "stands by"
    return "leads" if worker.leads else worker.state


def _describe_workers(status: Status) -> None:
    if status.workers:
        rows = [
            (
                worker.name,
                _role(worker),
                str(worker.generation),
                f"{seconds(worker.beat_age_seconds)} ago",
                str(worker.shards),
                str(worker.throttled),
            )
            for worker in status.workers
        ]
        heads = ("worker", "role", "generation", "last beat", "shards", "throttled calls")
        table(heads, rows, cut=("worker",))
        _describe_idle(status)
    elif status.host == LAMBDA:
        say("Lambda functions run it; this does not show whether a mapping invokes them")
    elif status.host in ENDED:
        say(f"no worker runs it any more: {status.host}")
    else:
        say("no worker is running", **BAD)


def _describe_idle(status: Status) -> None:
    """Say why no worker reads, although there are some, or what may slow them down."""
    throttled = sum(worker.throttled for worker in status.workers)
    if throttled and (status.lag_seconds or 0.0) > _BEHIND_SECONDS:
        say(
            f"it is behind, and AWS has throttled {throttled} calls: if `status --watch` shows"
            " more of them, raise the capacity of what `aws.repeated` names in the log",
            **WARN,
        )
    alive = {worker.state for worker in status.workers if not worker.silent}
    if status.host == WORKERS and not alive:
        say(
            "no worker is heard any more: they were killed, are suspended, or are cut off;"
            " `status --exit-code` waits for a heartbeat",
            **BAD,
        )
    elif alive == {"waiting"}:
        say(
            "all workers are of a version before the newest one: they take over when none of the"
            " newest has been alive for half a minute, or at once if started with"
            " STREAMKIT_TAKE_OVER=1",
            **WARN,
        )


def describe_status(status: Status) -> None:
    """Print a consumer's status."""
    say(f"{status.consumer} on table {status.table}")
    for one in status.halts:
        at = f"{moment(one.since)} UTC"
        say(f"{one.consumer} does not run: it halted at its start, at {at}: {one.why}", **BAD)
    if status.generation is None:
        say(status.unbegun, **(WARN if status.replaced else {}))
        return
    code = "" if status.current else ", started by other code than this"
    served = serving(status.fan_outs)
    parked = sum(status.parked.values()) - sum(served.values())
    say(
        f"generation {status.generation}{code}; lag {seconds(status.lag_seconds)};"
        f" {parked} parked in {status.parked_queues - len(served)} queues,"
        f" {status.stuck_queues} stuck{fanned_out(served)}",
        **(BAD if status.stuck_queues else WARN if parked else {}),
    )
    if status.paused:
        say(
            f"paused since {moment(status.paused)} UTC: it reads nothing until it is resumed",
            **WARN,
        )
    for text in status.refused:
        say(f"{text}; handlers go on, and what waits for the archive does not", **BAD)
    _describe_losses(status)
    if status.needs_rebuild:
        say(f"needs rebuild: {', '.join(status.needs_rebuild)}", **WARN)
    _describe_operations(status)
    say()
    _describe_workers(status)
    say()
    if status.fan_outs:
        describe_fan_outs(status.fan_outs)
        say()
    heads = ("shard", "state", "owner", "lag", "position", "parked")
    table(heads, _shard_rows(status.shards), drop=("position",), cut=("shard", "owner", "parked"))
    _describe_audit(status)


def _describe_operations(status: Status) -> None:
    for one in status.operations:
        paused = ", paused" if one.paused else ""
        done = "" if one.share is None else f", {one.share:.0%} done"
        left = "" if one.left is None else f", about {seconds(one.left)} left"
        say(f"{one.kind} of {one.name} is under way: {one.phase}{paused}{done}{left}")
    if not status.operations:
        say("no migration, rebuild, move or rewind is under way")


def _describe_audit(status: Status) -> None:
    if status.audit:
        rows = [(f"{moment(e.at)} UTC", e.by, e.what) for e in status.audit]
        say()
        table(("when", "by", "what"), rows)


def _describe_losses(status: Status) -> None:
    if status.time_to_loss_seconds is None and any(s.lag == "archived" for s in status.shards):
        say("the oldest unread change is in the archive")
    else:
        say(f"{seconds(status.time_to_loss_seconds)} until the oldest unread change is trimmed")
    if status.unread_shards:
        say(f"no worker reads {some_of(status.unread_shards)}", **BAD)
    if status.lost:
        why = "the stream was replaced, or did not reach back to the start"
        text = f"{why}, and changes may be lost, at {moment(status.lost)} UTC"
        say(text, **BAD)
    if status.lost_shards:
        say(f"may have lost changes: {', '.join(status.lost_shards)}", **BAD)
    if status.undecided_shards:
        text = "the archive has not decided yet whether records are lost"
        say(f"{', '.join(status.undecided_shards)}: {text}", **WARN)
    for shard in status.shards:
        if shard.waits_for:
            waited = ", ".join(shard.waits_for)
            say(f"{shard.name} waits for {waited}, which fails on a change", **WARN)
    if not (status.lost or status.lost_shards):
        say("; ".join(["no change is known to be lost", *_not_looked_at(status)]))


def _not_looked_at(status: Status) -> list[str]:
    """Return what was not checked for losses."""
    if status.host == LAMBDA:
        return ["the stream was not read; see the mapping's IteratorAge"]
    open_ = [shard for shard in status.shards if shard.state != "finished"]
    unseen = [shard.name for shard in open_ if shard.lag not in ("measured", "archived")]
    if not unseen:
        return []
    what = "the stream" if len(unseen) == len(open_) else ", ".join(unseen)
    return [f"not read: {what}"]


def describe_fan_outs(found: Iterable[FanOutStatus]) -> None:
    """Print fan-outs that are under way."""
    rows = [
        (
            f.queue,
            f.handler,
            f.state,
            str(f.served),
            "?" if f.share is None else f"{f.share:.0%}",
            seconds(f.left),
            "?" if f.speed is None else f"{f.speed:.1f}",
            str(f.parked),
            str(f.waiting),
            moment(f.since),
        )
        for f in found
    ]
    counts = ("served", "done", "left", "a second", "parked", "waiting")
    heads = ("fan-out", "handler", "state", *counts, "since (UTC)")
    table(heads, rows, drop=("since (UTC)", "a second", "waiting"), cut=("handler", "fan-out"))


def describe_archive(found: ArchiveCheck) -> None:
    """Print what an archive has, and what it lacks."""
    say(f"{found.place}: {found.records} records of {found.shards} shards in {found.links} objects")
    if found.records:
        say(f"created {moment(found.first)} to {moment(found.until)} (UTC)")
    say(f"it began {moment(found.began)} (UTC); {found.open} of the shards are still written")
    for gap in found.gaps:
        say(f"missing, shard {gap.shard}: {gap.text}" if gap.shard else f"missing: {gap.text}")
    gaps = f"{len(found.gaps)} gap{'s' if len(found.gaps) > 1 else ''}"
    say(gaps if found.gaps else "nothing is missing")
    if found.sampled:
        same = found.sampled - len(found.different)
        say(f"{same} of {found.sampled} items are in the table as the archive has them")
    for item in found.different:
        say(f"different: {item}")


def _shard_rows(shards: Sequence[ShardStatus]) -> Iterator[tuple[str, ...]]:
    for stem, shard in zip(stems([shard.depth for shard in shards]), shards, strict=True):
        yield (
            stem + shard.name,
            shard.state,
            shard.owner or "-",
            _lag(shard),
            shard.position.lstrip("0") or "0",
            ", ".join(f"{name} {count}" for name, count in shard.parked.items()) or "-",
        )


def _lag(shard: ShardStatus) -> str:
    if shard.state == "finished":
        return "-"
    if shard.lag == "lost":
        return "RECORDS LOST"
    if shard.lag == "undecided":
        return "not decided yet"
    if shard.lag == "archived":
        return f"{seconds(shard.lag_seconds)}, in the archive"
    return f"{'≤ ' if shard.lag == 'at most' else ''}{seconds(shard.lag_seconds)}"


def stems(depths: Sequence[int]) -> list[str]:
    """Return the branches to draw before the nodes of a forest, given in depth-first order."""
    drawn: list[str] = []
    goes_on: set[int] = set()
    for depth in reversed(depths):
        branches = ["│  " if level in goes_on else "   " for level in range(1, depth)]
        if depth:
            branches.append("├─ " if depth in goes_on else "└─ ")
        drawn.append("".join(branches))
        goes_on = {level for level in goes_on if level < depth} | {depth}
    return drawn[::-1]


def describe_inspection(found: AppInspection) -> None:
    """Print whether an app fits its table."""
    facts = found.table
    keys = ", ".join(f"{name} ({kind})" for name, kind in facts.keys.items())
    say(f"app {found.app} on table {facts.name}")
    say(f"  keys     {keys}")
    say(f"  stream   {facts.stream_view or 'none'}")
    say(f"  ttl      {facts.ttl or 'none'}")
    for name, parts in facts.indexes.items():
        say(f"  index    {name}: {', '.join(f'{part} ({kind})' for part, kind in parts.items())}")
    if found.control_table != facts.name:
        say(f"  control  {found.control_table}")
    say(f"  items    {found.looked_at} of yours looked at, of {found.scanned} read")
    say()
    table(("handler", "listens to", "delivery", "on failure", "declared"), _handler_rows(found))
    say()
    rows = [(p.action, " ".join((_MARKS[p.allowed], p.code)).strip()) for p in found.permissions]
    table(("permission", "result"), rows)
    say()
    for finding in found.findings:
        say(f"{finding.severity}: {finding.text}")
    but = (
        f", except for what was not tried: {', '.join(found.not_tried)}" if found.not_tried else ""
    )
    say(f"ok{but}" if found.ok else "not ok")


def _handler_rows(found: AppInspection) -> Iterator[tuple[str, ...]]:
    for handler in found.handlers:
        policy = f"{handler.on_failure} after {handler.attempts}"
        if handler.send_attempts > handler.attempts:
            policy += f", a send after {handler.send_attempts}"
        kinds = f"{handler.entity} {'|'.join(handler.kinds)}"
        yield handler.name, kinds, handler.delivery, policy, handler.declared
