"""What a replay is asked for, and what it says: counts for each handler, and a list. Pure."""

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from streamkit.core.shadow import digest_of
from streamkit.operate.replay.progress import Tell
from streamkit.progress.actions import Action
from streamkit.progress.clock import utc
from streamkit.progress.operation import Refusal
from streamkit.stream.decode import Record

Mode = Literal["write", "dry-run", "shadow"]

LISTED_MAX = 1000
"""So many changes that were passed over, failed or differ are listed; all are counted."""


def replay_name(consumer: str) -> str:
    """Return the name of the consumer that replays to the end beside another one."""
    return f"{consumer}.replay"


class ReplayRefused(Refusal):
    """A replay would end wrong; nothing was changed. `reasons` are for people."""


@dataclass(frozen=True, slots=True)
class ReplayWish:
    """What is to be replayed; times in epoch seconds, and infinity for an `until` that is now.

    `allow` names handlers that may do what their declarations do not show to be harmless.
    `revision` is an attribute that never has the same value twice, such as a version: it is
    compared like the others, and allows handlers that look at the old image. With `keys` only
    items with these partition keys are replayed. `show_keys` lists keys as they are, and not as
    hashes. `to_end` runs all changes since then, in order, and not only until a moment. `units` are
    the write units a second that it may use; None is no limit.
    """

    since: float
    until: float
    handlers: Sequence[str]
    mode: Mode = "write"
    keys: Collection[str] = ()
    allow: Collection[str] = ()
    revision: str = ""
    allow_loss: bool = False
    show_keys: bool = False
    to_end: bool = False
    units: float | None = None
    tell: Tell = lambda _: None


def asked_for(wish: ReplayWish) -> str:
    """Return what a replay is asked for: the same text means that a command goes on with it."""
    text = f"{', '.join(sorted(wish.handlers))} since {utc(wish.since).isoformat()}"
    if not wish.keys:
        return text
    digest = hashlib.blake2b(repr(sorted(wish.keys)).encode(), digest_size=4).hexdigest()
    return f"{text}, {len(set(wish.keys))} partition keys ({digest})"


@dataclass(slots=True)
class HandlerReplay:
    """What became of the changes that a handler listens to.

    `ran` are those that it ran for and that were written, or would be; `items` the items that they
    write; `nothing` those without effects. `same` and `different` compare items (shadow). `passed`
    and `failed` count the others by their reasons.
    """

    ran: int = 0
    items: int = 0
    nothing: int = 0
    same: int = 0
    different: int = 0
    passed: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        plain = replace(self, passed=Counter(), failed=Counter())  # `asdict` breaks counters
        return asdict(plain) | {"passed": dict(self.passed), "failed": dict(self.failed)}


@dataclass(slots=True)
class Replayed:
    """The report of a replay; `listed` has the first changes that did not run or that differ.

    `under_way` says that a replay to the end has stopped before it: it has to go on. `missing` are
    the partition keys that were asked for, and of which there was no change.
    """

    consumer: str
    mode: str
    since: float
    until: float
    read: int = 0
    handlers: dict[str, HandlerReplay] = field(default_factory=dict)
    listed: list[dict[str, Any]] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    show_keys: bool = False
    under_way: bool = False
    missing: list[str] = field(default_factory=list)

    def stop(self) -> None:
        """Record that it has stopped half way."""
        self.under_way = True

    def note_read(self, records: int) -> None:
        """Count changes that were read."""
        self.read += records

    def pass_over(self, handler: str, record: Record, reason: str) -> None:
        """Count and list a change for which a handler did not run, or wrote nothing."""
        self.handlers[handler].passed[reason] += 1
        self.note_row(handler, record, reason)

    def note_failed(self, handler: str, record: Record, kind: str) -> None:
        """Count and list a change for which a handler has failed."""
        self.handlers[handler].failed[kind] += 1
        self.note_row(handler, record, f"failed: {kind}")

    def note_row(
        self,
        handler: str,
        record: Record,
        reason: str,
        action: Action | None = None,
        names: Sequence[str] = (),
    ) -> None:
        """List a change that did not run, or an `action` that differs in the attributes `names`."""
        if len(self.listed) >= LISTED_MAX:
            return
        item = None if record.flaw else record.item_key  # one with a flaw belongs to no item
        row = {"handler": handler, "item": item.digest if item else "-"}
        row |= {"position": record.position.lstrip("0"), "reason": reason}
        if self.show_keys and item:
            row["key"] = " ".join(str(part) for part in item if part is not None)
        if action is not None:
            pk, sk = action.ref.pk[1], action.ref.sk
            target = pk if sk is None else f"{pk} {sk[1]}"
            row["target"] = target if self.show_keys else digest_of(action.ref)
            row["attributes"] = ", ".join(names)
        self.listed.append(row)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types."""
        handlers = {name: one.to_dict() for name, one in self.handlers.items()}
        return asdict(replace(self, handlers={})) | {"handlers": handlers}
