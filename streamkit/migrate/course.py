"""Decide what comes after a pass, and where a migration stops and waits for people. Pure.

In: the state in which a pass has ended. Out: a `PhaseStep`: the next phase, a line for the audit,
and the other fields of the state that change.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from streamkit.migrate.state import Phase, State

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
    return PhaseStep(phase, phase, facts)


def first_of(state: State) -> int:
    """Return the next attempt that begins with the first of a phase's tables; there may be two."""
    return state.attempt + 2 - state.attempt % 2


def given_up(state: State, note: str) -> PhaseStep:
    """Return the step that leaves a migration to people.

    While pairs are switched the phase stays: a rollback must know it.
    """
    if state.phase in ("scanning", "verifying"):
        return PhaseStep("blocked", note, {"note": note})
    if state.does == "comparing":  # nothing is taken away yet
        again = {"attempt": 0, "refused": state.refused + 1, "declared": 0.0}
        return PhaseStep("soaking", f"not contracted: {note}", {"note": note, **again})
    facts: dict[str, Any] = {"note": note, "paused": True, "stage": state.stage}
    facts["attempt"] = first_of(state)
    return PhaseStep(state.phase, note, facts)
