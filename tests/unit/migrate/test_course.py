"""The course of a migration: no pass ever has the name of one before it, whatever people do."""

import json
from dataclasses import replace

import pytest

from streamkit.migrate.book import course
from streamkit.migrate.book.course import after_pass, first_of, given_up, once_more
from streamkit.migrate.book.state import PASSES, State, read_state

STEPS = 12


def turned(state, turn):
    """Do what the process that runs a migration does with a turn."""
    return replace(state, phase=turn.phase, **({"stage": ""} | dict(turn.facts)))


def following(state):
    """Return the states that may come next: after a pass, or by what a person says."""
    if state.phase in PASSES:
        yield turned(state, given_up(state, "why"))
        if state.phase == "verifying":
            yield replace(state, phase="ready", stage="")
            return
        yield turned(state, after_pass(state))
        if state.does not in ("scanning", "comparing"):
            yield turned(state, once_more(state))
    elif state.phase == "catching up":
        yield replace(state, phase="verifying")
    elif state.phase == "blocked":
        yield replace(state, phase="verifying", attempt=first_of(state))
    elif state.phase == "ready":
        yield replace(state, phase="switching", attempt=0)
    elif state.phase == "soaking":
        yield replace(state, phase="contracting", stage="comparing", note="")


def repeated():
    """Return the names of passes that would be taken for others that were read before."""
    found, todo = set(), [(State("0001", phase="scanning", run=1), frozenset())]
    for _ in range(STEPS):
        later = {}
        for state, names in todo:
            if state.phase in PASSES and state.pass_name in names:
                found.add(state.pass_name)
                continue
            seen = names | {state.pass_name} if state.phase in PASSES else names
            for after in following(state):
                later[after.phase, after.pass_name, seen] = after, seen
        todo = list(later.values())
    return found


def test_no_pass_has_the_name_of_one_whose_segments_may_still_be_there():
    """A process that is killed before it deletes them leaves them finished."""
    assert repeated() == set()


def test_a_contraction_that_compares_under_the_name_of_the_last_one_is_found(monkeypatch):
    given = given_up

    def forgetful(state, note):
        turn = given(state, note)
        return replace(turn, facts={k: v for k, v in turn.facts.items() if k != "refused"})

    monkeypatch.setitem(globals(), "given_up", forgetful)
    assert course.given_up is given
    assert repeated() == {"0001.1.comparing.0"}


@pytest.mark.parametrize(("desired", "paused"), [("pause", True), ("run", False)])
def test_a_pause_is_stored_under_the_name_that_older_releases_write_and_read(desired, paused):
    older = {"id": "0001", "phase": "scanning", "desired": desired, "audit": []}
    state = read_state(json.dumps(older), 3)
    assert (state.paused, state.waits, state.version) == (paused, paused, 3)
    stored = state.to_dict()
    assert stored["desired"] == desired
    assert "paused" not in stored
