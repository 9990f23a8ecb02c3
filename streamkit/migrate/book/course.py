"""Decide what comes after a pass, and where a migration stops and waits for people. Pure.

In: the state in which a pass has ended. Out: a `PhaseStep`: the next phase, a line for the audit,
and the other fields of the state that change.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from streamkit.migrate.book.state import SWITCHED, Phase, State
from streamkit.progress.operation import AuditEntry

_NEXT: Final[Mapping[str, Phase]] = {
    "scanning": "catching up",
    "switching": "soaking",
    "contracting": "closing",
    "closing": "done",
    "following": "unturning",
    "unturning": "dropping",
    "dropping": "rolled back",
}


@dataclass(frozen=True, slots=True)
class PhaseStep:
    """A step from one phase to another, or to another pass of it; `what` is for the audit."""

    phase: Phase
    what: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def once_more(state: State) -> PhaseStep:
    """Return the step to another pass of the same phase."""
    facts = {"attempt": state.attempt + 1, "stage": state.stage}
    return PhaseStep(state.phase, "once more", facts)


def after_pass(state: State) -> PhaseStep:
    """Return the step that comes after a pass that left nothing to do."""
    facts: dict[str, Any] = {"note": "", "attempt": 0}
    if state.does == "comparing":
        what = "deleting old items" if state.declared else "leaving stubs"
        return PhaseStep("contracting", what, facts)
    phase = _NEXT[state.does]
    if state.does == "scanning":  # no later phase stops after its first items
        facts["first"] = 0
    return PhaseStep(phase, phase, facts)


def first_of(state: State) -> int:
    """Return the next attempt that begins with the first of a phase's tables; there may be two."""
    return state.attempt + 2 - state.attempt % 2


def given_up(state: State, note: str) -> PhaseStep:
    """Return the step that leaves a migration to people.

    While pairs are switched the phase stays: a rollback must know it.
    """
    if state.phase in ("scanning", "verifying"):  # `first` stays: then the scan is not done
        return PhaseStep("blocked", note, {"note": note})
    if state.does == "comparing":  # nothing is taken away yet
        again = {"attempt": 0, "refused": state.refused + 1, "declared": 0.0}
        return PhaseStep("soaking", f"not contracted: {note}", {"note": note, **again})
    facts: dict[str, Any] = {"note": note, "paused": True, "stage": state.stage}
    facts["attempt"] = first_of(state)
    return PhaseStep(state.phase, note, facts)


def after_resume(state: State, digest: str) -> State:
    """Return the state in which a migration continues with a definition; the same if it runs.

    Of a scan a note says that its first items are done. A pause before that keeps the brake, and so
    does a block: then the scan begins once more, while others that were blocked are verified.
    """
    blocked = state.phase == "blocked"
    first = state.first if blocked or not state.note else 0
    later = replace(state, paused=False, digest=digest, first=first)
    if state.at_once and state.note:  # it was stopped: from here on stubs are left
        later = replace(later, declared=0.0, bare=True)
    if blocked:
        phase: Phase = "scanning" if first else "verifying"
        later = replace(later, phase=phase, attempt=first_of(state))
    return state if later == state else replace(later, note="")


def begun_anew(state: State, moment: float, owner: str, *, pairs: bool) -> State:
    """Return the state that captures again from now on, because changes may have been lost.

    The table is read once more. Of `pairs` the phase stays after the switch and in a rollback: what
    a rollback does depends on it. What is blocked stays so until people have decided.
    """
    stays = pairs and (state.phase in SWITCHED or state.direction == "back")
    phase: Phase = state.phase if stays or state.phase == "blocked" else "capturing"
    again = replace(state, run=state.run + 1, phase=phase, began=moment)
    return again.noted(AuditEntry(moment, owner, "changes may have been lost: begun anew"))
