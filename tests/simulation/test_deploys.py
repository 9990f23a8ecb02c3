"""Deploys and moves back and forth while two persons redrive: each change counts once, in order."""

from collections import Counter

import pytest

from streamkit.core.parked import head
from streamkit.errors import InvariantError
from streamkit.operate.moves.marking import Marking
from tests.simulation.deploys import run

SEEDS = range(3)


def test_deploys_moves_and_redrives_count_each_change_once_and_in_order():
    met = Counter()
    for seed in SEEDS:
        played = run(seed)
        assert not played.wrong, f"seed {seed}: {played.wrong}"
        met += played.met
    assert all(met[name] for name in ("parked", "redriven", "deploys", "killed", "moves")), met


def redrive_checks_neither(monkeypatch):
    """Two persons who redrive at once both apply a change (rows C2 and C4 of the model)."""
    advance, removal = head._advance, head._removal

    def unguarded(action):
        action.guards.clear()
        return action

    monkeypatch.setattr(head, "_advance", lambda *args: unguarded(advance(*args)))
    monkeypatch.setattr(
        head, "_removal", lambda *args: [unguarded(action) for action in removal(*args)]
    )


def marks_are_not_raised(monkeypatch):
    """Functions do again what workers have done before the move."""

    async def nothing(*_):
        return None

    monkeypatch.setattr(Marking, "raise_all", nothing)


@pytest.mark.parametrize("plant", [redrive_checks_neither, marks_are_not_raised])
def test_a_planted_bug_is_found(plant, monkeypatch):
    """It counts wrong, or it leaves control items behind that cannot be read."""
    plant(monkeypatch)

    def is_found(seed):
        try:
            return bool(run(seed).wrong)
        except KeyError as error:
            return error.args == ("lane",)
        except InvariantError:  # what reads a queue has noticed it first
            return True

    assert any(is_found(seed) for seed in SEEDS)
