"""Decide what comes after a pass, and where a migration stops and waits for people. Pure.

In: the state in which a pass has ended. Out: a `PhaseStep`: the next phase, a line for the audit,
and the other fields of the state that change.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from streamkit.migrate.state import SWITCHED, Phase, State
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
    """A step from one phase to another, or to another pass of it."""

    phase: Phase
    what: str
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
    return PhaseStep(phase, phase, facts | _unbraked(state))


def first_of(state: State) -> int:
    """Return the next attempt that begins with the first of a phase's tables; there may be two."""
    return state.attempt + 2 - state.attempt % 2


def _unbraked(state: State) -> dict[str, Any]:
    """Return the field by which a scan that ends stops no later phase after its first items."""
    return {"first": 0} if state.does == "scanning" else {}


def given_up(state: State, note: str) -> PhaseStep:
    """Return the step that leaves a migration to people.

    While pairs are switched the phase stays: a rollback must know it.
    """
    if state.phase in ("scanning", "verifying"):
        return PhaseStep("blocked", note, {"note": note} | _unbraked(state))
    if state.does == "comparing":  # nothing is taken away yet
        again = {"attempt": 0, "refused": state.refused + 1, "declared": 0.0}
        return PhaseStep("soaking", f"not contracted: {note}", {"note": note, **again})
    facts: dict[str, Any] = {"note": note, "paused": True, "stage": state.stage}
    facts["attempt"] = first_of(state)
    return PhaseStep(state.phase, note, facts)


def begun_anew(state: State, moment: float, owner: str, *, pairs: bool) -> State:
    """Return the state that captures again from now on, because changes may have been lost.

    The table is read once more. Of `pairs` the phase stays after the switch and in a rollback: what
    a rollback does depends on it. What is blocked stays so until people have decided.
    """
    stays = pairs and (state.phase in SWITCHED or state.direction == "back")
    phase: Phase = state.phase if stays or state.phase == "blocked" else "capturing"
    again = replace(state, run=state.run + 1, phase=phase, began=moment)
    return again.noted(AuditEntry(moment, owner, "changes may have been lost: begun anew"))
