"""Describe the state of a migration, from phase to phase; `state_book` stores it. Pure.

`phase` is what was reached, and `paused` says that operators want it to wait; every process that
runs the migration follows both, so that a pause needs no reply. `README.md` beside this package has
a table of what each phase may assume, and what it leaves true. A rollback where nothing moves goes
from `capturing` to `verifying` with the reverse function. `blocked`: items could not be migrated,
and people decide.

In: a state's stored text, or a command. Out: states, and the audit in them. On failure:
`ConfigurationError` for a phase that this version does not know.
"""

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, get_args

from streamkit.errors import ConfigurationError
from streamkit.kinds.migration import MOVES
from streamkit.progress.operation import Audit, AuditEntry, noted, read_audit

Phase = Literal[
    "new",
    "capturing",
    "scanning",
    "catching up",
    "verifying",
    "blocked",
    "ready",
    "switching",
    "soaking",
    "contracting",
    "closing",
    "done",
    "returning",
    "following",
    "unturning",
    "dropping",
    "rolled back",
]
Direction = Literal["forward", "back"]
Stage = Literal["", "comparing"]

PASSES: Final = frozenset(
    {
        *("scanning", "verifying", "switching", "contracting", "closing"),
        *("following", "unturning", "dropping"),
    }
)
"""The phases in which the table is read in segments."""
ENDED: Final = frozenset({"done", "rolled back"})
"""The phases at the end, forward and back."""
RESTING: Final = frozenset({"new", "ready", "soaking", "done", "rolled back", "blocked"})
"""The phases in which nothing happens until an operator gives a command."""
FOLLOWED: Final = frozenset({"ready", "soaking", "closing"})
"""The phases of waiting in which changes are still followed, while a process runs."""
SWITCHED: Final = frozenset(
    {"switching", "soaking", "contracting", "closing", "returning", "following"}
)
"""The phases in which targets are the truth."""

_RECORDS = "pairs "
"""Stands before the digest of a definition that was begun with pair records."""
_KEYS = "keys "
"""Stands before the definition and the list of a migration that was begun for chosen items.

A release that knows no list keeps this text, also where it writes the state without the fields."""
_CHOSEN: Final = ("digest", "keys_from", "keys_tag", "since")
GATES: Final = 64
"""Copies of the gate. Each transaction that makes a pair checks a copy, and two at one copy
conflict; one transaction writes them all, together with the state."""
_COMMANDS = frozenset({"begin", "pause", "resume", "limit", "switch", "contract", "rollback"})
"""First words of the audit lines of operators' commands; lines of processes begin differently."""
_AUDIT_MAX = 200


@dataclass(frozen=True, slots=True)
class State:
    """The state of one migration; `run` grows when it begins again, `attempt` with each pass.

    A pause stops only the passes: changes are followed, or the stream would forget them. It may be
    made at rest, too, and then the next command has to wait. The item says `desired`, because
    processes of older releases read that.

    `max_reads` and `max_writes` are units a second of the whole migration, None without a limit.
    `verified` is what the last verification found. `version` counts the changes of this item.
    `switched` is when the switch was begun, for earlier releases; `stage` is of `contracting`, ""
    is the stage that leaves stubs. `records` says that each pair has a record: those of earlier
    releases have none. A release that knows none has to leave these alone, so it is stored as
    another definition. `declared` is when people said that no old code writes any more, so that old
    items go at once, or in a rollback no new code; 0 is never. `bare`: that was taken back, after
    old items had gone without stubs. `refused` is how often a contraction has gone back to
    `soaking`. `max_errors` is how many items of a pass may fail, below 1 a share of them; `first`
    is after how many items the scan pauses; 0 is no limit. `keys_from` says which items are chosen
    (see `chosen`), with the tag of such a list; "" is the whole table. `since` is the moment that
    an export shows, else 0. A release that knows nothing of that has to leave it alone, too.
    `listed`: the migration is among those that were begun.
    """

    id: str
    digest: str = ""
    mode: str = ""
    phase: Phase = "new"
    paused: bool = False
    direction: Direction = "forward"
    run: int = 0
    attempt: int = 0
    segments: int = 0
    began: float = 0.0
    updated: float = 0.0
    max_reads: float | None = None
    max_writes: float | None = None
    note: str = ""
    verified: dict[str, int] = field(default_factory=dict)
    audit: Audit = ()
    version: int = 0
    switched: float = 0.0
    stage: Stage = ""
    declared: float = 0.0
    refused: int = 0
    max_errors: float = 0.0
    first: int = 0
    records: bool = False
    keys_from: str = ""
    keys_tag: str = ""
    since: float = 0.0
    listed: bool = False
    bare: bool = False

    @property
    def consumer(self) -> str:
        """The end of the name of the consumer that captures changes: every run has another one."""
        return f"{self.id}-{self.run}"

    @property
    def desired(self) -> Literal["run", "pause"]:
        """What operators want, in the word that is stored and printed."""
        return "pause" if self.paused else "run"

    @property
    def waits(self) -> bool:
        """Whether there is something to do, and an operator has paused it."""
        return self.paused and self.phase not in RESTING

    @property
    def does(self) -> str:
        """The stage, where a phase has some, else the phase."""
        return self.stage or self.phase

    @property
    def reads_keys(self) -> bool:
        """Whether passes read the chosen items; a rollback looks for what was changed anywhere."""
        return bool(self.keys_from) and self.direction == "forward"

    @property
    def in_order(self) -> bool:
        """Whether the chosen items are those of a query, which has no segments for a sample."""
        return self.reads_keys and "{" in self.keys_from

    @property
    def follows(self) -> float:
        """The moment from which on changes are followed: that of an export, or of the beginning."""
        return self.since if self.reads_keys and self.since else self.began

    @property
    def can_return(self) -> bool:
        """Whether every old item still exists."""
        return self.phase not in ("contracting", "closing") or self.stage == "comparing"

    @property
    def at_once(self) -> bool:
        """Whether old items go without a stub, because people said that no old code writes."""
        return self.declared > 0 and not self.can_return

    @property
    def waits_where_gone(self) -> bool:
        """Whether what is written where no record is left waits for people.

        An old item may have gone from there at once, and no record says what new code did since.
        """
        return self.at_once or (self.bare and not self.can_return)

    @property
    def course(self) -> tuple[int, str, str]:
        """The fields that decide which writes are right; a pause does not."""
        return self.run, self.direction, f"{self.does} at once" if self.at_once else self.does

    @property
    def gate(self) -> str:
        """What a write that makes a pair checks: it names what may be made now; "" is nothing."""
        if self.mode not in MOVES or self.phase in ("new", "done", "rolled back"):
            return ""
        return f"{self.run} {self.direction} {'made' if self.can_return else 'ending'}"

    @property
    def pass_name(self) -> str:
        """The name of the phase's pass, for its segments; every pass has another one.

        Otherwise segments that a killed process has left of one pass would count as read in
        another.
        """
        name = f"{self.id}.{self.run}.{self.does}.{self.attempt}"
        return f"{name}.{self.refused}" if self.refused else name

    @property
    def commands(self) -> Audit:
        """The lines of its audit that are commands."""
        return tuple(entry for entry in self.audit if entry.what.partition(" ")[0] in _COMMANDS)

    def commanded(self, said: AuditEntry) -> "State":
        """Return the state after one more command."""
        return replace(self.noted(said), version=self.version + 1)

    def noted(self, said: AuditEntry) -> "State":
        """Return the state with one more line in its audit."""
        return replace(self, updated=said.at, audit=noted(self.audit, said, _AUDIT_MAX))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types, under the names that are stored."""
        fields = asdict(self)
        del fields["paused"]
        if fields.pop("records") and self.phase not in ENDED:
            fields["digest"] = _RECORDS + self.digest
        elif self.reads_keys and self.phase != "done":
            fields["digest"] = _KEYS + json.dumps([getattr(self, name) for name in _CHOSEN])
        return fields | {"desired": self.desired}


def read_state(text: str, version: int) -> State:
    """Return a state from its stored text."""
    found = json.loads(text)
    found["audit"] = read_audit(found.get("audit", ()))
    found["version"] = version
    found["paused"] = found.get("desired") == "pause"
    digest = found.get("digest", "")
    found["records"] = digest.startswith(_RECORDS)
    found["digest"] = digest.removeprefix(_RECORDS)
    if digest.startswith(_KEYS):
        parts = json.loads(digest.removeprefix(_KEYS))
        found |= dict(zip(_CHOSEN, parts, strict=False))
    known = {name: value for name, value in found.items() if name in State.__slots__}
    state = State(**known)
    if state.phase not in get_args(Phase):
        raise ConfigurationError(
            f"migration {state.id} is in phase {state.phase!r}, which this version does not know"
        )
    return state
